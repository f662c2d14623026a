"""Markup in names and texts is shown as text, in every page, in Markdown and in CSV."""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.report.test_report import ROWS

from robustok.report import write_report
from robustok.runtime.display import markdown
from robustok.runtime.files import write_csv, write_rows

HOSTILE = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</style></title><b>", "]]>",
    "`a` | b", "[a](javascript:alert(1))", "{{ 7 * 7 }}{% raw %}", "&lt;i&gt;", "line\nline",
    "' onmouseover='alert(1)", "<svg/onload=alert(1)>", "-->", "$\\no{1}$",
)  # fmt: skip
NAME = " ".join(HOSTILE)
TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "header", "p", "h1", "h2", "span",
    "ul", "li", "b", "section", "picture", "source", "img", "div", "table", "thead", "tr", "th",
    "tbody", "td", "small", "details", "summary", "pre", "footer", "wbr", "i",
}  # fmt: skip
ATTRIBUTES = {
    "lang", "charset", "name", "content", "class", "style", "id", "media", "srcset", "src", "alt",
    "tabindex", "role", "aria-label",
}  # fmt: skip


class Page(HTMLParser):
    """Checks that a page has only our tags and attributes, and collects its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        assert {name for name, _ in attrs} <= ATTRIBUTES
        values = dict(attrs)
        assert tag != "img" or str(values["src"]).startswith("data:image/svg+xml;base64,")

    def handle_data(self, data: str) -> None:
        self.text += data


def flat(text: str) -> str:
    """Without the spaces and line ends that a page may move."""
    return "".join(text.split())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    study = {"name": NAME, "title": NAME, "about": NAME, "data": {"file": NAME}}
    (tmp_path / "study.json").write_text(json.dumps(study))
    rows: list[dict[str, Any]] = [
        row | {"study": NAME, "task": f"{task} {NAME}", "versions": {NAME: NAME},
               "model": row["model"] | {"name": NAME}}
        for task in ("a", "b") for row in ROWS
    ]  # fmt: skip
    write_rows(tmp_path / "results.jsonl", rows)
    return tmp_path


def test_a_report_shows_markup_as_text(folder: Path) -> None:
    page = Page(write_report(folder))
    assert flat(page.text).count(flat(NAME)) >= 5
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert "<script" not in text and "<img" not in text and "<svg" not in text
    assert "a](javascript" not in text
    assert markdown(NAME) in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({line.replace("\\|", "").count("|") for line in table.splitlines()}) == 1
    for path in sorted((folder / "figures").glob("*.svg")):
        assert "<script" not in path.read_text(encoding="utf-8")


def test_a_csv_has_no_formulas(tmp_path: Path) -> None:
    texts = ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "a=1", "b\n=1", "uniform"]
    rows = [{"name": text, "value": -0.5} for text in [*texts, "\r=1"]]
    write_csv(tmp_path / "a.csv", rows)
    with (tmp_path / "a.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [row["name"] for row in read] == [
        *(f"'{text}" for text in texts[:5]), *texts[5:], " =1",
    ]  # fmt: skip
    assert {row["value"] for row in read} == {"-0.5"}
