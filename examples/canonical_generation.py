"""A logits processor for `generate` that keeps the output canonical.

A tiny model from random weights. Without a hub: python examples/canonical_generation.py
"""

from __future__ import annotations

import torch

import robustok as rt
from robustok.integrations.hooks import CanonicalProcessor
from robustok.models import Shape, small_model, train_tokenizer

TEXT = "the theater is there, the rest rests: see http://the.net/the/nest there"


def main() -> dict[str, bool]:
    vocab = rt.Vocabulary.load(train_tokenizer([TEXT] * 9, 310))
    model = small_model(vocab.size, Shape(2, 64, 2, 2, 160, 128), seed=0)
    words = TEXT.encode().split()
    no_word = [i for i, t in enumerate(vocab.tokens) if not any(t.strip() in w for w in words)]
    no_word += [i for i, t in enumerate(vocab.tokens) if not t.strip()]
    guard = rt.Guard(vocab)

    start = torch.tensor([vocab.encode("see the rest").tolist()])
    canonical = CanonicalProcessor(vocab, prompt_length=start.shape[1])
    results = {}
    for name, processors in (("plain", []), ("canonical", [canonical])):
        torch.manual_seed(0)
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
