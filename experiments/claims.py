"""The claims of the paper and their tests, as `claims.yaml` has them: read, not judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

CLAIMS = Path(__file__).with_name("claims.yaml")
RESULTS = Path(__file__).with_name("results")
# Whether a hypothesis may be without or with a margin.
MARGINS = {
    "higher": (False, True), "lower": (False, True), "no loss": (True,), "equal": (True,),
    "same": (False,),
}  # fmt: skip
# Of the choice of a family or margin, relative to its data; between: some seeds were seen.
TIMES = ("before", "between", "after")

Row = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """A difference between rows of one folder: `of` minus `against`, times `weight`."""

    results: str
    of: Row
    against: Row
    rows: Row = field(default_factory=dict)
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class Test:
    """One comparison that decides a claim: a line of the page. See the head of claims.yaml."""

    parts: tuple[Part, ...]
    hypothesis: str
    seeds: int
    family: str
    name: str = ""  # of a pool
    margin: float = 0.0
    margin_fixed: str = ""
    looks: dict[int, float] = field(default_factory=dict)
    paper: float | None = None
    source: str = ""  # `from` in the file
    distribution: dict[str, Any] = field(default_factory=dict)
    left_out: str = ""
    headline: str = ""

    def __post_init__(self) -> None:
        allowed = MARGINS.get(self.hypothesis, ())
        if bool(self.margin) not in allowed:
            raise ValueError(f"{self}: one of {[*MARGINS]}, with the margin that it needs")
        if self.margin and self.margin_fixed not in TIMES:
            raise ValueError(f"{self}: margin_fixed is one of {TIMES}")
        if (self.hypothesis == "same") != bool(self.distribution):
            raise ValueError(f"{self}: a distribution is of the hypothesis `same`")
        if self.looks and self.seeds not in self.looks:
            raise ValueError(f"{self}: the last look is at {self.seeds} seeds")

    @property
    def results(self) -> str:
        """The folder of the first part."""
        return self.parts[0].results


@dataclass(frozen=True)
class Claim:
    """What the paper says, and its tests; `why` where there are none."""

    topic: str
    claim: str
    where: str
    tests: tuple[Test, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Claims:
    """The content of claims.yaml."""

    page: str  # the text above the tables
    headlines: dict[str, str]  # the lines of the first table, each of one test
    left_out: dict[str, str]  # reasons why tests are left out of the tables
    not_run_text: str
    families_text: str
    pages: dict[str, dict[str, Any]]
    models: dict[str, dict[str, str]]
    families: dict[str, dict[str, str]]
    claims: tuple[Claim, ...]

    @property
    def tests(self) -> list[Test]:
        """All tests, those left out of the tables included."""
        return [test for claim in self.claims for test in claim.tests]

    def link(self, folder: str) -> str:
        """Where the rows of a folder are shown, relative to docs/results."""
        for name, page in self.pages.items():
            if folder in page["runs"]:
                return f"{name}.md#{folder}"
        return self.models[folder]["page"]


def read_claims(path: Path = CLAIMS) -> Claims:
    """Read the claims file; an unknown field, family or folder is an error."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    claims = []
    for number, entry in enumerate(content["claims"]):
        of_claim = enumerate(entry.pop("tests", ()))
        tests = [_test(fields, f"{number}.{place}") for place, fields in of_claim]
        claims.append(Claim(tests=tuple(tests), **entry))
    content.pop("specs", None)
    read = Claims(**content | {"claims": tuple(claims)})
    for test in read.tests:
        if not is_alone(test.family) and test.family not in read.families:
            raise ValueError(f"{path} has no family '{test.family}'")
        if {test.left_out, test.headline} - {"", *read.left_out, *read.headlines}:
            raise ValueError(f"{path} has no text '{test.left_out or test.headline}'")
        for part in test.parts:
            if part.results not in read.models:
                raise ValueError(f"{path} has no model '{part.results}'")
    used = {test.family for test in read.tests}
    for name, family in read.families.items():
        if name not in used or family["fixed"] not in TIMES:
            raise ValueError(f"the family '{name}' has no test, or is not fixed {TIMES}")
    return read


def is_alone(family: str) -> bool:
    """Whether the family of a test is only its place in the file."""
    return family.replace(".", "").isdigit()


def _test(fields: dict[str, Any], place: str) -> Test:
    common = {name: fields.pop(name) for name in ("results", "of", "against") if name in fields}
    rows, pool = fields.pop("rows", {}), fields.pop("pool", None)
    parts = [common | part | {"rows": rows | part.get("rows", {})} for part in pool or ({},)]
    if pool and "name" not in fields:
        raise ValueError(f"the pool {pool} has no name")
    equal: dict[str, Any] = {"weight": 1 / len(parts)}
    made = tuple(Part(**equal | part) for part in parts)
    alone = {"family": place, "source": fields.pop("from", "")}
    return Test(parts=made, **alone | fields)
