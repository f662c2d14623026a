"""Prints the fields with lists of integers that vLLM's routes take, as JSON, by path.

Run by the Python that has vLLM. The routes come from the routers of vLLM's own package, and the
fields from the JSON schema of each request.
"""

# pyright: reportMissingImports=false

import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator
from typing import Any

import vllm.entrypoints
from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import TypeAdapter


def routers() -> Iterator[APIRouter]:
    for module in pkgutil.walk_packages(vllm.entrypoints.__path__, "vllm.entrypoints."):
        if module.name.endswith("api_router"):
            names = vars(importlib.import_module(module.name))
            yield from (value for value in names.values() if isinstance(value, APIRouter))


def lists_of_integers(
    schema: Any,
    definitions: dict[str, Any],
    names: tuple[str, ...] = (),
    seen: frozenset = frozenset(),
) -> Iterator[str]:
    """The names of fields with lists of integers, from the top of a body, joined by dots."""
    reference = schema.get("$ref", "").rpartition("/")[2]
    if reference:
        if reference not in seen:
            inner = definitions[reference]
            yield from lists_of_integers(inner, definitions, names, seen | {reference})
        return
    for choice in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for inner in schema.get(choice, []):
            yield from lists_of_integers(inner, definitions, names, seen)
    items = schema.get("items")
    if isinstance(items, dict):
        if any(part.get("type") == "integer" for part in (items, *items.get("anyOf", []))):
            yield ".".join(names)
        yield from lists_of_integers(items, definitions, names, seen)
    for name, inner in schema.get("properties", {}).items():
        yield from lists_of_integers(inner, definitions, (*names, name), seen)


def main() -> None:
    fields: dict[str, list[str]] = {}
    for router in routers():
        for route in router.routes:
            if isinstance(route, APIRoute) and route.body_field is not None:
                adapter: TypeAdapter[Any] = TypeAdapter(route.body_field.field_info.annotation)
                schema = adapter.json_schema()
                found = sorted(set(lists_of_integers(schema, schema.get("$defs", {}))))
                fields[route.path] = sorted({*fields.get(route.path, []), *found})
    sys.stdout.write(json.dumps(fields) + "\n")


if __name__ == "__main__":
    main()
