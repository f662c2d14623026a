"""Token-in, token-out rollouts of an agent: sampled ids stay, and what re-encoding changes.

A tiny model from random weights answers twice, with a tool's output between its answers. Without a
hub: python examples/agent_rollouts.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

import robustok as rt
from robustok.guard import Audit
from robustok.guard.rollouts import prefix_of
from robustok.models import Shape, small_model, train_tokenizer

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# What the template writes after an answer, with the output of a tool.
AFTER = "<|im_end|>\n<|im_start|>tool\n{}<|im_end|>\n<|im_start|>assistant\n"


def main(out: str = "runs/agent-rollouts") -> dict[str, float]:
    text = (
        "which word is the longest of these words, asked the user of the tool and the assistant\n"
    )
    trained = train_tokenizer([text] * 9, 320)
    trained.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=trained, chat_template=TEMPLATE)
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

    # The rollout: new text is encoded by itself, and sampled ids are never encoded again.
    chat: list[dict[str, str]] = [{"role": "user", "content": "which word is the longest?"}]
    prompt = np.array(tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"])
    rollout: list[dict[str, list[int]]] = []
    for tool_output in ("the assistant", None):
        ids, log_probs = sample(prompt)
        rollout.append({"prompt_ids": prompt.tolist(), "completion_ids": ids.tolist()})
        if tool_output:
            first = np.concatenate([prompt, ids])
            (new,) = vocab.encode_continuations([AFTER.format(tool_output)], parse_special=True)
            prompt = np.concatenate([first, new])
            chat += [{"role": "assistant", "content": vocab.decode(ids)},
                     {"role": "tool", "content": tool_output}]  # fmt: skip
    print(f"sampled ids kept: {prefix_of(vocab, first, prompt).explanation}")

    # The same conversation through text, as most agent frameworks pass it on.
    through_text = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    print(f"through text: {prefix_of(vocab, first, through_text).explanation}")

    # Log-probabilities of sampled ids for ids that were encoded again: sums of blocks stay.
    again = vocab.encode(vocab.decode(ids))
    blocks = rt.align(vocab, ids, vocab, again)
    carried = blocks.carry(log_probs)
    print(f"{blocks.same.sum()} of {len(blocks)} blocks are the same in {len(ids)} sampled and "
          f"{len(again)} encoded ids")  # fmt: skip

    audit = Audit(vocab)
    audit.add([row["completion_ids"] for row in rollout])
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    trained.save(str(folder / "tokenizer.json"))
    lines = "".join(json.dumps(row) + "\n" for row in rollout)
    (folder / "rollouts.jsonl").write_text(lines, encoding="utf-8")
    print(f"robustok audit {folder}/rollouts.jsonl -t {folder}/tokenizer.json")
    return {
        "drifted": audit.report().drifted_rows,
        "log_prob": float(log_probs.sum()),
        "carried": float(carried.sum()),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
