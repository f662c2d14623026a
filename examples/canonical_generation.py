"""Two logits processors for `generate`: canonical output, and a healed end of the prompt.

A tiny model from random weights. Without a hub: python examples/canonical_generation.py
"""

from __future__ import annotations

import torch

import robustok as rt
from robustok.integrations.generation import CanonicalProcessor, heal
from robustok.models import Shape, small_model, train_tokenizer

TEXT = "the theater is there, the rest rests: see http://the.net/the/nest there"


def main() -> dict[str, bool]:
    vocab = rt.Vocabulary.load(train_tokenizer([TEXT] * 9, 310))
    model = small_model(vocab.size, Shape(2, 64, 2, 2, 160, 128), seed=0)
    words = TEXT.encode().split()
    no_word = [i for i, t in enumerate(vocab.tokens) if not any(t.strip() in w for w in words)]
    no_word += [i for i, t in enumerate(vocab.tokens) if not t.strip()]
    guard = rt.Guard(vocab)

    # The prompt ends within "http://"; its end is taken back, and the completion begins with it.
    ids, healing = heal(vocab, [vocab.encode("see htt")])
    given = torch.tensor(ids)
    canonical = CanonicalProcessor(vocab, prompt_length=given.shape[1])
    results = {}
    for name, processors in (("plain", []), ("healed and canonical", [healing, canonical])):
        torch.manual_seed(0)
        start = torch.tensor([vocab.encode("see htt").tolist()]) if name == "plain" else given
        out = model.generate(  # type: ignore[operator]
            start,
            attention_mask=torch.ones_like(start),
            max_new_tokens=24,
            do_sample=True,
            pad_token_id=0,
            suppress_tokens=no_word,
            logits_processor=processors,
        )
        row = out[0].tolist()
        results[name] = guard.check(row).canonical
        print(f"{name}: {vocab.decode(row)!r}, canonical: {results[name]}")
    return results


if __name__ == "__main__":
    main()
