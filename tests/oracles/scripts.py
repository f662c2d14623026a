"""Scripts outside the package, as modules."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def script(path: str) -> Any:
    """The module of a file, by its path in the repository; run anew in every call."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where `dataclass` looks up the names of annotations
    spec.loader.exec_module(module)
    return module
