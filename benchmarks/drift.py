"""Retokenization drift of a chat model: completions sampled at a temperature, encoded again.

    python benchmarks/drift.py --out runs/drift              # a few minutes on one core

SmolLM2-135M-Instruct answers harmless prompts at temperatures 0.7, 1 and 1.3, without top-k or
top-p. Each completion's sampled ids are compared with the encoding of their text. Writes
rollouts-T.jsonl for `robustok audit`, drift.json, and a figure: share of completions that drifted
by the number of tokens, and share of drifted tokens by position. Completions that exist are read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import robustok as rt
from common import options_of
from robustok.guard import Audit
from robustok.models import load_model, load_tokenizer
from robustok.report.style import figure_style, new_figure, save_all
from robustok.runtime.files import write_rows
from robustok.runtime.inputs import read_rows

TEMPERATURES = (0.7, 1.0, 1.3)
PROMPTS = [
    "Explain why the sky is blue.", "Write a short poem about the sea.", "How do I bake bread?",
    "What is a prime number?", "Tell me a story about a fox.", "List five fruits and their colors.",
    "How does a bicycle stay upright?", "Write a letter to a friend about the weather.",
    "What is 17 times 23? Think step by step.", "Describe a day at a market in Marseille.",
    "Write a Python function that reverses a string.", "Translate 'good morning' into French.",
    "Summarize the life of a butterfly.", "Why do leaves fall in autumn?",
    "Give me three names for a cat.", "What is the capital of Iceland, and what is it known for?",
]  # fmt: skip
COLORS = ("#0072b2", "#1f2933", "#d55e00")


def sampled(
    model: Any, tokenizer: Any, temperature: float, each: int, length: int
) -> list[list[int]]:
    """The ids of ``each`` completions of every prompt, up to the end token, which is left out."""
    import torch

    torch.manual_seed(0)
    tokenizer.padding_side = "left"
    chats = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
    given = tokenizer.apply_chat_template(
        chats, add_generation_prompt=True, padding=True, return_dict=True,
        return_tensors="pt",
    )  # fmt: skip
    out = model.generate(
        **given, do_sample=True, temperature=temperature, top_k=0, top_p=1.0,
        num_return_sequences=each, max_new_tokens=length, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    special = set(tokenizer.all_special_ids)
    rows = out[:, given["input_ids"].shape[1] :].tolist()
    ends = [next((at for at, i in enumerate(row) if i in special), len(row)) for row in rows]
    return [row[:end] for row, end in zip(rows, ends, strict=True)]


def drifted_ids(vocab: Any, rows: list[list[int]]) -> list[np.ndarray]:
    """For each completion, which of its ids the encoding of its text does not have."""
    marks = []
    for row in rows:
        text = vocab.decode_bytes(row).decode("utf-8", "replace")
        spans = set(zip(vocab.encode(text).tolist(), _ends(vocab, vocab.encode(text)), strict=True))
        marks.append(np.array([pair not in spans for pair in zip(row, _ends(vocab, row),
                                                                 strict=True)]))  # fmt: skip
    return marks


def _ends(vocab: Any, ids: Any) -> list[int]:
    return np.cumsum([len(vocab.tokens[i]) for i in np.asarray(ids).tolist()]).tolist()


def draw(marks: dict[float, list[np.ndarray]], length: int, stem: Path) -> None:
    """Both panels, a line for each temperature, as PNG and SVG."""
    with figure_style():
        figure, (left, right) = new_figure((8.2, 3.8), 1, 2)
        width = max(1, length // 6)
        for (temperature, rows), color in zip(marks.items(), COLORS, strict=False):
            firsts = [int(row.argmax()) if row.any() else length for row in rows]
            at = np.arange(length + 1)
            share = [100 * np.mean([first < n for first in firsts]) for n in at]
            left.plot(at, share, color=color, linewidth=1.8, label=f"temperature {temperature}")
            bins = [
                [mark for row in rows for mark in row[begin : begin + width]]
                for begin in range(0, length, width)
            ]
            right.plot(
                [begin + width / 2 for begin, one in zip(range(0, length, width), bins,
                                                         strict=True) if one],
                [1000 * np.mean(one) for one in bins if one],
                color=color, linewidth=1.8, marker="o", markersize=4.5,
            )  # fmt: skip
        left.set_xlabel("tokens generated")
        left.set_title("completions that drifted, %")
        right.set_xlabel("position in the completion")
        right.set_title("drifted tokens in 1,000, by position")
        for axes in (left, right):
            axes.set_ylim(bottom=0)
            axes.grid(axis="y")
        right.tick_params(labelleft=True)
        left.legend()
        save_all(figure, stem)


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="smollm2-135m", help="a folder or hub name")
    parser.add_argument("--each", type=int, default=6, help="completions of a prompt")
    parser.add_argument("--length", type=int, default=96, help="most tokens of a completion")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    vocab = rt.Vocabulary.load(given.model)
    marks, record = {}, []
    for temperature in TEMPERATURES:
        path = given.out / f"rollouts-{temperature}.jsonl"
        if not path.exists():
            model = load_model(given.model, dtype="float32")
            tokenizer = load_tokenizer(given.model)
            rows = sampled(model, tokenizer, temperature, given.each, given.length)
            write_rows(path, rows)
        rows = [row for row in read_rows(path) if row]
        audit = Audit(vocab)
        audit.add(rows)
        drift = audit.report()
        marks[temperature] = drifted_ids(vocab, rows)
        record.append({"temperature": temperature, **drift.as_dict()})
        every = drift.parts[0]
        print(
            f"temperature {temperature}: {drift.drifted_rows} of {drift.rows} completions drifted, "
            f"{every.drifted} of {every.ids} ids ({1000 * every.drifted / every.ids:.1f} in 1,000)"
        )
        for part in drift.parts:
            if part.group in ("kind", "exchange"):
                print(f"  {part.name}: {part.events} times")
    (given.out / "drift.json").write_text(json.dumps(record, indent=1, default=str))
    draw(marks, given.length, given.out / "drift")


if __name__ == "__main__":
    main()
