"""Fail where modules of robustok import each other in a circle.

    python .ci/cycles.py

Imports inside functions and under TYPE_CHECKING count. `grimp`, the library below import-linter,
reads them from the source. Layers in pyproject.toml keep circles out between packages; this script
keeps them out inside a package, too.
"""

from __future__ import annotations

import itertools
import sys
from graphlib import CycleError, TopologicalSorter

import grimp

# Imports that close a circle. The list may only shrink.
KNOWN = {
    ("robustok.tokenizer.vocabulary", "robustok.lattice"),  # Vocabulary.lattice()
}


def circle() -> str | None:
    """The error, or None where no circle is left beside the known ones."""
    graph = grimp.build_graph("robustok", cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    for importer, imported in KNOWN:
        if not reaches(imports, imported, importer) or imported not in imports[importer]:
            return f"{importer} -> {imported} closes no circle: take it from KNOWN in .ci/cycles.py"
    for importer, imported in KNOWN:
        imports[importer] = imports[importer] - {imported}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        names = error.args[1][::-1]  # graphlib lists what is imported first
        lines = [
            f"  {importer}:{detail['line_number']}: {detail['line_contents']}"
            for importer, imported in itertools.pairwise(names)
            for detail in graph.get_import_details(importer=importer, imported=imported)[:1]
        ]
        return "\n".join(["modules import each other in a circle:", *lines])
    return None


def reaches(imports: dict[str, set[str]], start: str, end: str) -> bool:
    """Whether ``start`` imports ``end``, directly or not."""
    reached, waiting = {start}, [start]
    while waiting:
        following = imports[waiting.pop()] - reached
        reached |= following
        waiting += following
    return end in reached


if __name__ == "__main__":
    sys.exit(circle())
