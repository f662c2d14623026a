"""Token-in, token-out rollouts of an agent: sampled ids stay, and what re-encoding costs is shown.

A tiny model from random weights answers twice, with a tool's output between its answers. Without a
hub: python examples/agent_rollouts.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

import robustok as rt
from robustok.guard import Audit
from robustok.guard.rollouts import align, prefix_of, stitch
from robustok.models import Shape, small_model, train_tokenizer

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def main(out: str = "runs/agent-rollouts") -> dict[str, float]:
    text = (
        "which word is the longest of these words, asked the user of the tool and the assistant\n"
    )
    trained = train_tokenizer([text] * 9, 320)
    trained.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=trained, chat_template=TEMPLATE)
    vocab = rt.Vocabulary.load(tokenizer)
    model = small_model(len(tokenizer), Shape(2, 64, 2, 2, 160, 256), seed=0)
    torch.manual_seed(0)
    words = text.encode().split()
    no_word = [i for i, t in enumerate(vocab.tokens) if not any(t.strip() in w for w in words)]

    def sample(prompt: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sampled ids, and the log-probability of each."""
        given = torch.tensor([prompt.tolist()])
        step = model.generate(  # type: ignore[operator]
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=24,
            do_sample=True,
            pad_token_id=0,
            suppress_tokens=no_word,  # random weights would write any bytes
            return_dict_in_generate=True,
            output_logits=True,
        )
        ids = step.sequences[0, len(prompt) :]
        log_probs = torch.stack(step.logits)[:, 0].log_softmax(-1)[range(len(ids)), ids]
        return ids.numpy().astype(np.int32), log_probs.double().numpy()

    # The rollout: text is encoded once, and sampled ids are never decoded and encoded again.
    turns: list[dict] = [{"role": "user", "content": "which word is the longest?"}]
    prompts = []
    for tool_output in ("the assistant", None):
        prompts.append(stitch(vocab, tokenizer, turns))
        ids, log_probs = sample(prompts[-1].ids)
        turns.append({"role": "assistant", "ids": ids})
        if tool_output:
            first = np.concatenate([prompts[-1].ids, ids])
            turns.append({"role": "tool", "name": "search", "content": tool_output})
    print(f"stitched: {prefix_of(vocab, first, prompts[-1].ids).explanation}")

    # The same conversation through text, as most agent frameworks pass it on.
    texts = [
        {"role": t["role"], "content": vocab.decode(t["ids"]) if "ids" in t else t["content"]}
        for t in turns
    ]
    through_text = tokenizer.apply_chat_template(texts[:3], add_generation_prompt=True)["input_ids"]
    print(f"through text: {prefix_of(vocab, first, through_text).explanation}")

    # Log-probabilities of sampled ids for ids that were encoded again: sums of blocks stay.
    again = vocab.encode(vocab.decode(ids))
    blocks = align(vocab, ids, again)
    carried = blocks.carry(log_probs)
    print(f"{blocks.same.sum()} of {len(blocks)} blocks are the same in {len(ids)} sampled and "
          f"{len(again)} encoded ids")  # fmt: skip

    audit = Audit(vocab)
    audit.add([t["ids"] for t in turns if "ids" in t], turns=[1, 3], roles=["assistant"] * 2)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    trained.save(str(folder / "tokenizer.json"))
    saved = [{**t, "ids": t["ids"].tolist()} if "ids" in t else t for t in turns]
    (folder / "rollouts.jsonl").write_text(json.dumps({"turns": saved}))
    print(f"robustok audit {folder} -t {folder}/tokenizer.json")
    return {
        "drifted": audit.report().drifted_rows,
        "log_prob": float(log_probs.sum()),
        "carried": float(carried.sum()),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
