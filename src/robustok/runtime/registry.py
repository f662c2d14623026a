"""Names of schemes, objectives and searches: a registry, entry points, and MODULE:FUNCTION."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from robustok.errors import RobustokError, nearest

T = TypeVar("T")
_place = attrgetter("__module__", "__qualname__")  # where a function or a class is defined


class Registry(Mapping[str, T]):
    """Functions or classes of one kind by name.

    Args:
        kind: what it holds, for errors.
        group: entry-point group of packages with more of them. They are loaded once a process, when
            a name is unknown or by :meth:`with_packages`. Without a group, MODULE:FUNCTION is a
            name too.
        enter: registers what an entry point loads.
    """

    def __init__(
        self, kind: str, group: str = "", enter: Callable[[object], object] | None = None
    ) -> None:
        self.kind = kind
        self._group, self._enter = group, enter
        self._known: dict[str, T] = {}
        self._failures: dict[str, str] = {}  # by entry point: why it could not be loaded
        self._is_loaded = False

    def register(self, name: str) -> Callable[[T], T]:
        """A decorator that registers a function or a class by its ``name``.

        Raises RobustokError for a name that another one has. One that is defined again, as when a
        module is imported again, replaces the earlier one.
        """

        def decorate(value: T) -> T:
            other = self._known.get(name, value)
            if other is not value and _place(other) != _place(value):
                raise RobustokError(
                    f"{self.kind} '{name}' is already registered: choose another name"
                )
            self._known[name] = value
            return value

        return decorate

    def find(self, name: str) -> T | None:
        """What has the name; None where neither this nor an installed package has it."""
        if name not in self._known:
            self._load_packages()
        return self._known.get(name)

    def __getitem__(self, name: str) -> T:
        """What has the name; raises RobustokError that names the nearest where nothing has it."""
        value = self.find(name)
        if value is not None:
            return value
        if name in self._failures:
            raise RobustokError(self._failures[name])
        if ":" in name and not self._group:
            return function_named(name)  # type: ignore[return-value]
        raise RobustokError(f"unknown {self.kind} '{name}': {nearest(name, self._known)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def with_packages(self) -> dict[str, T]:
        """All by name, with those of installed packages; warns of each that cannot be loaded."""
        self._load_packages()
        for reason in self._failures.values():
            warnings.warn(reason, stacklevel=3)
        self._failures.clear()
        return dict(self._known)

    def _load_packages(self) -> None:
        if self._is_loaded or self._enter is None:
            return
        self._is_loaded = True  # before loading: a package may look names up while it is imported
        for path in filter(None, os.environ.get(_IMPORTS, "").split(os.pathsep)):
            import_file(path)
        for entry in entry_points(group=self._group):
            try:
                self._enter(entry.load())
            except Exception as error:  # whatever the code of the package raises
                package = entry.dist.name if entry.dist else entry.module
                text = " ".join(str(error).split())
                self._failures[entry.name] = (
                    f"the {self.kind} '{entry.name}' of the package {package} cannot be loaded: "
                    f"{type(error).__name__}: {text}"
                )


_IMPORTS = "ROBUSTOK_IMPORT"  # files that worker processes import, too


def import_file(path: str) -> None:
    """Run a Python file once, which may register schemes.

    Raises RobustokError where it cannot be run.
    """
    file = Path(path).resolve()
    name = f"imported_{file.stem}_{zlib.crc32(str(file).encode()):08x}"
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise RobustokError(f"--import {path}: give a file of Python that exists, as FILE.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        text = " ".join(str(error).split())
        raise RobustokError(f"--import {path}: {type(error).__name__}: {text}") from error


def import_for_all(path: str) -> None:
    """Run a Python file in this process, and in the worker processes that it starts."""
    import_file(path)
    known = filter(None, os.environ.get(_IMPORTS, "").split(os.pathsep))
    os.environ[_IMPORTS] = os.pathsep.join(dict.fromkeys([*known, str(Path(path).resolve())]))


def function_named(name: str) -> Callable[..., Any]:
    """The function of a ``name`` MODULE:FUNCTION, of the working folder or an installed package.

    Raises RobustokError where there is no such module or function.
    """
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:  # noqa: PTH109
        sys.path.append(os.getcwd())  # noqa: PTH109
    try:
        value = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise RobustokError(f"no function '{name}': {error}") from None
    if not callable(value):
        raise RobustokError(f"'{name}' is no function: give MODULE:FUNCTION")
    return value
