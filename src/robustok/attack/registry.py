"""Objectives, searches and constraints by name, as schemes are.

A name is that of a built-in thing, of one that was registered, or of an entry point of an installed
package; or it is ``MODULE:FUNCTION``.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from robustok.errors import RobustokError, nearest

T = TypeVar("T")


class Registry(Generic[T]):
    """Functions of one kind by name.

    >>> registry = Registry("search", "robustok.searches")
    >>> @registry.register("nothing")
    ... def nothing(trial):
    ...     yield []
    >>> registry.names(), registry["nothing"] is nothing
    (['nothing'], True)

    Args:
        kind: what it holds, for errors.
        group: entry-point group of the packages that add to it.
    """

    def __init__(self, kind: str, group: str) -> None:
        self.kind, self.group = kind, group
        self._known: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """A decorator that registers a function.

        Args:
            name: its name.

        Raises RobustokError for a name that another function has.
        """

        def decorate(function: T) -> T:
            other = self._known.get(name, function)
            # Where a module is imported again, its function replaces the earlier one.
            if other is not function and _place(other) != _place(function):
                raise RobustokError(f"{self.kind} '{name}' is already registered: rename one")
            self._known[name] = function
            return function

        return decorate

    def names(self) -> list[str]:
        """All names, those of installed packages included."""
        return [*self._known, *(entry.name for entry in entry_points(group=self.group))]

    def __getitem__(self, name: str) -> T:
        """The function of a name; raises RobustokError where there is none."""
        if name in self._known:
            return self._known[name]
        if ":" in name:
            return function_named(name)  # type: ignore[return-value]
        for entry in entry_points(group=self.group, name=name):
            try:
                return self._known.setdefault(name, entry.load())
            except Exception as error:
                raise RobustokError(
                    f"{self.kind} '{name}' of {entry.value} cannot be loaded: {error}"
                ) from error
        raise RobustokError(f"unknown {self.kind} '{name}': {nearest(name, self.names())}")


def _place(function: Any) -> tuple[str, str]:
    """Where a function is defined: its module and its name there."""
    return function.__module__, function.__qualname__


def function_named(name: str) -> Callable[..., Any]:
    """The function ``MODULE:FUNCTION``, from a module of the working folder or an installed one.

    >>> function_named("math:sqrt")(9)
    3.0

    Args:
        name: module and function with a colon between them.

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
