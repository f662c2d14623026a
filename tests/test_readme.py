"""The first example of the README runs unchanged and gives the results in its comments."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("ROBUSTOK_DATA", ROOT.parent / "shared" / "data"))


def first_example(tokenizer: Path) -> dict:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[0]
    names: dict = {}
    exec(code.replace('"tokenizer.json"', repr(str(tokenizer))), names)
    return names


def test_the_first_example_gives_the_results_in_its_comments() -> None:
    tokenizer = DATA / "tokenizers" / "gpt2" / "tokenizer.json"
    if not tokenizer.is_file():
        pytest.skip(f"GPT-2's tokenizer is not in {DATA}; set ROBUSTOK_DATA")
    names = first_example(tokenizer)
    vocab, lattice, ids = names["vocab"], names["lattice"], names["ids"]
    assert (lattice.count(), lattice.count(distance=2)) == (352, 7)
    assert ids.tolist() == [258, 18798, 995]
    assert names["sampler"].log_prob(ids) == pytest.approx(-math.log(7))
    assert names["rt"].distance(vocab, vocab.encode("hello world"), ids) == 2
    assert len(names["batch"]) == 20


def test_the_first_example_runs_with_any_tokenizer(tmp_path: Path) -> None:
    from robustok.models import train_tokenizer

    train_tokenizer(["hello world and more"] * 3, 275).save(str(tmp_path / "t.json"))
    assert len(first_example(tmp_path / "t.json")["batch"]) == 20
