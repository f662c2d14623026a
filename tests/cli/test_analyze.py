"""analyze from a shell: a table or JSON, figures on request, one line on what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Shell
from tests.guard.tokenizers_of import byte_level

TEXT = "the theater is there"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("small") / "tokenizer.json"
    byte_level(None).data.source.save(str(path))
    return str(path)


def test_each_analysis_tells_its_rows(shell: Shell, tokenizer: str, tmp_path: Path) -> None:
    same = ("-t", tokenizer, "--seed", "0")
    rows = shell.json("analyze", "split-counts", *same, "--text", TEXT, "--draws", "100")
    assert {r["scheme"] for r in rows} >= {"uniform", "uniform-k(alpha=1)"}
    rows = shell.json("analyze", "segmentations", *same, "--text", TEXT, "--draws", "100")
    assert {r["splits"] for r in rows} >= {1}
    rows = shell.json("analyze", "dropout", *same, "--text", TEXT, "--draws", "20", "--p", "0.5")
    assert [r["rule"] for r in rows][:3] == ["provilkov", "hf", "sentencepiece"]
    words = tmp_path / "words.txt"
    words.write_text("the\nrest\nthen\n")
    rows = shell.json("analyze", "bias", *same, "--words-file", str(words), "--draws", "200")
    assert {r["tokenizer"] for r in rows} == {Path(tokenizer).parent.name}
    texts = tmp_path / "texts.txt"
    texts.write_text(TEXT)
    rows = shell.json(
        "analyze", "growth", *same, "--texts", str(texts), "--alpha", "0", "--alpha", "1"
    )
    assert [r["alpha"] for r in rows] == [0, 1] * 3
    assert {r["ratio"] for r in rows if r["alpha"] == 0} == {1.0}


def test_a_figure_and_a_table(shell: Shell, tokenizer: str, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("the\nrest\nthen\n")
    args = ("bias", "-t", f"mine={tokenizer}", "--seed", "0", "--words-file", str(words), "--draws",
            "200", "--out", str(tmp_path / "out"))  # fmt: skip
    out = shell.ok("analyze", *args)
    assert "total variation" in out and "mine" in out
    names = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert names == ["bias-words.csv", "bias.csv", "bias.png", "bias.svg"]
