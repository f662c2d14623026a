"""The limits on the page of guarantees are those of the code."""

from __future__ import annotations

from typing import Any

import pytest
from tests.oracles.scripts import ROOT

from robustok import checks, lattice
from robustok.guard import check, findings
from robustok.play import server
from robustok.runtime import inputs
from robustok.samplers import spec
from robustok.study import planner
from robustok.tokenizer import vocabulary

PAGE = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")


def power(number: int) -> str:
    """A power of two as the page writes it."""
    assert number.bit_count() == 1
    return "2" + str(number.bit_length() - 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


@pytest.mark.parametrize(("row", "limits"), [
    ("`alpha`", [f"0 to {checks.MAX_STRENGTH:,.0f}"]),
    ("counts in specs", [f"up to {power(checks.MAX_COUNT + 1)} − 1"]),
    ("token of text", [f"{vocabulary.MOST_BYTES:,} bytes"]),
    ("spec string", [f"{spec._LONGEST:,} characters, {spec._DEEPEST} nested schemes"]),
    ("a guarded sequence", [f"{check.MAX_LENGTH:,} ids"]),
    ("findings listed", [f"{findings.MAX_FINDINGS:,}; all are counted"]),
    ("`Lattice.counts`", [f"{lattice._MOST_BITS >> 23} MB of counts"]),
    ("`Lattice.neighbors` | 2", [f"{power(lattice._MOST_CELLS)} pairs of positions and distances"]),
    ("line of JSON Lines", [f"{inputs.MAX_LINE >> 20} MiB decompressed"]),
    ("study", [f"{planner.MAX_CELLS:,} cells"]),
    ("request to the playground", [
        f"{server._BODY:,} bytes", f"text of {server.LONGEST} characters",
        f"2 to {server.OPTIONS} options",
    ]),
])  # fmt: skip
def test_a_limit_of_the_page_is_that_of_the_code(row: str, limits: Any) -> None:
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {row}")]
    for limit in limits:
        assert limit in line
