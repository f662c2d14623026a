"""Reads the token ids of rollouts from files as trainers, environments and servers write them.

`LAYOUTS` is one table: where a layout has its prompts, its completions and the mask of what was
sampled. The columns of the first row with ids choose the layout. Files are Parquet or JSON Lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from robustok.checks import IGNORED
from robustok.errors import RobustokError
from robustok.runtime.inputs import find_inputs, json_lines, kind_of

_PARQUET_ROWS = 256  # read at a time
_READ = ("system", "developer", "user", "tool", "function")  # roles whose ids are not sampled
_TOOL_NAMES = ("tool", "tool_name", "name")  # keys of a turn that may name a tool
# Lists of integers beside ids that are none.
_NO_IDS = ("attention_mask", "position_ids", "token_type_ids", "weight_versions", "labels")


class Layout(NamedTuple):
    """Where a kind of file has ids: paths of names joined by dots, alternatives joined by ``|``.

    ``items``: the objects with ids, below the row; lists on the way are entered, and the empty path
    is the row itself. ``prompt`` and ``completion``: their ids; a path that begins with ``/``
    begins at the row. ``mask``: for each id of the completion whether it was sampled, as 0 and 1 or
    as labels. ``length``: how many last ids were sampled. ``role``: that of an item. ``joins``:
    each item continues the one whose number its ``parent`` is.
    """

    name: str
    items: str
    prompt: str
    completion: str
    mask: str = ""
    length: str = ""
    role: str = ""
    joins: bool = False


LAYOUTS = (
    Layout("verifiers", "traces.nodes|nodes", "", "token_ids", "mask", role="message.role",
           joins=True),
    Layout("verifiers-steps", "trajectory.tokens", "prompt_ids", "completion_ids",
           "completion_mask"),
    Layout("nemo-gym", "response.output|output", "prompt_token_ids", "generation_token_ids"),
    Layout("agent-lightning", "triplets|", "prompt.token_ids", "response.token_ids"),
    Layout("vllm", "outputs|choices", "/prompt_token_ids|prompt_token_ids", "token_ids"),
    Layout("slime", "samples|", "", "tokens", "loss_mask", length="response_length"),
    Layout("verl", "", "prompt_ids|prompts", "response_ids|responses",
           "response_mask|loss_mask"),
    Layout("trl", "", "prompt_ids|prompt_token_ids", "completion_ids|completion_token_ids|"
           "response_token_ids|generation_token_ids|output_ids",
           "tool_mask|completion_mask|loss_mask"),
    Layout("trl-sft", "", "", "input_ids", "assistant_masks|completion_mask|loss_mask|labels"),
    Layout("prime-rl", "", "", "token_ids", "loss_mask|mask"),
    Layout("messages", "messages|turns|conversation|conversations", "", "ids|token_ids",
           role="role"),
)  # fmt: skip


class Part(NamedTuple):
    """The ids ``begin`` to ``end`` (not included) of a sequence, all of one role."""

    begin: int
    end: int
    role: str
    is_sampled: bool


class Rollout(NamedTuple):
    """The id sequences of one row of a file, int32 [n], and the parts of each.

    >>> Rollout([(np.array([276, 275], np.int32), [])]).prompt is None
    True

    ``prompt`` is the same for rollouts whose ids before the first sampled one are the same; None
    where there are no such ids.
    """

    sequences: list[tuple[np.ndarray, list[Part]]]
    prompt: bytes | None = None


def read_rollouts(path: Path, layout: str | None = None) -> Iterator[Rollout]:
    """The rollouts of a file.

    >>> row = '{"prompt_ids": [276, 275], "completion_ids": [275]}'
    >>> _ = Path("rollouts.jsonl").write_text(row)
    >>> (rollout,) = read_rollouts(Path("rollouts.jsonl"))
    >>> [(ids.tolist(), [part.role for part in parts]) for ids, parts in rollout.sequences]
    [([276, 275, 275], ['prompt', 'completion'])]

    Args:
        path: a Parquet (.parquet) or JSON Lines file (.jsonl, also compressed) of objects, or of
            bare lists of ids.
        layout: the name of a layout, or a column of ids; by default the columns choose one.

    Prompt and completion are one sequence. Rows without ids have no sequence. An id outside int32
    becomes -1. Raises RobustokError for a file without ids, for ids that are no integers, and where
    a row has a further list of integers that no layout has.
    """
    chosen = None if layout is None else _named_layout(layout)
    columns: list[str] | None = None  # of the first row
    has_ids = False
    for label, row in _rows(path):
        if _is_ids(row):
            columns, has_ids = columns or [], True
            yield Rollout([_sequence(label, [], row, None, None, "")])
            continue
        if not isinstance(row, dict):
            raise RobustokError(
                f"{label}: expected a list of token ids or an object, got {str(row)[:60]}"
            )
        columns = columns or list(row)
        chosen = chosen or _layout_of(row)
        if chosen is None:
            continue
        rollout = _rollout(label, row, chosen)
        has_ids = has_ids or bool(rollout.sequences)
        if layout is None:
            _check_unread(label, row, chosen)
        yield rollout
    if columns is not None and not has_ids:
        names = ", ".join(one.name for one in LAYOUTS)
        read = f" in its columns {', '.join(columns[:9])}" if columns else ""
        raise RobustokError(
            f"{path} has no token ids{read}: give a layout ({names}) or the column of ids"
        )


def _named_layout(name: str) -> Layout:
    by_name = {one.name: one for one in LAYOUTS}
    return by_name.get(name) or Layout(name, "", "", name)


def _layout_of(row: dict[str, Any]) -> Layout | None:
    """The first layout of the table that has ids in this row, or its only list of integers."""
    for layout in LAYOUTS:
        if any(_is_ids(_value(item, layout.completion, row)) for item in _items(row, layout)):
            return layout
    columns = [name for name, value in row.items() if _is_ids(value) and len(value)]
    columns = [name for name in columns if not _is_mask(name, row[name])]
    if len(columns) > 1:
        raise RobustokError(
            f"several columns of integers ({', '.join(columns)}), and no layout has them: name "
            "the column of ids as layout"
        )
    return Layout("ids", "", "", columns[0]) if columns else None


def _items(row: dict[str, Any], layout: Layout) -> list[dict[str, Any]]:
    """The objects of a row that may have ids, in order; those of the first path that has some."""
    for path in layout.items.split("|"):
        values: list[Any] = [row]
        for name in path.split(".") if path else []:
            below = [v.get(name) for v in values if isinstance(v, dict)]
            values = [v for value in below for v in (value if isinstance(value, list) else [value])]
        items = [value for value in values if isinstance(value, dict)]
        if items:
            return items
    return []


def _value(item: dict[str, Any], paths: str, row: dict[str, Any]) -> Any:
    """The value of the first path that has one; None without."""
    for path in paths.split("|") if paths else []:
        value: Any = row if path.startswith("/") else item
        for name in path.removeprefix("/").split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            return value
    return None


def _rollout(label: str, row: dict[str, Any], layout: Layout) -> Rollout:
    items = _items(row, layout)
    sequences: list[tuple[np.ndarray, list[Part]]] = []
    for number, item in enumerate(items):
        ids = _value(item, layout.completion, row)
        if ids is None:
            continue
        prompt = _value(item, layout.prompt, row) or []
        mask, length = _value(item, layout.mask, row), _value(item, layout.length, row)
        where = f"{label}, item {number}" if layout.items else label
        role = ""
        if layout.role:
            author = _value(item, layout.role, row)
            role = _role(item, author)
            if mask is None and author in _READ:
                length = 0
        sequences.append(_sequence(where, prompt, ids, mask, length, role))
    if layout.joins:
        parents = [item.get("parent") for item in items]
        if len(sequences) == len(items):
            sequences = _joined(sequences, parents)
    return Rollout(sequences, _prompt_key(sequences))


def _prompt_key(sequences: Sequence[tuple[np.ndarray, list[Part]]]) -> bytes | None:
    """A hash of all ids before the first sampled one; None where there is none."""
    digest, size = blake2b(digest_size=16), 0
    for ids, parts in sequences:
        end = next((part.begin for part in parts if part.is_sampled), len(ids))
        digest.update(ids[:end].tobytes())
        size += end
        if end < len(ids):
            break
    return digest.digest() if size else None


def _role(turn: dict[str, Any], role: object) -> str:
    name = next((turn[key] for key in _TOOL_NAMES if isinstance(turn.get(key), str)), None)
    return f"{role or 'no role'}:{name}" if name else str(role or "no role")


def _sequence(
    label: str, prompt: Any, completion: Any, mask: Any, length: Any, role: str
) -> tuple[np.ndarray, list[Part]]:
    """Prompt and completion as one sequence, and its parts."""
    before, ids = _ids(prompt, label), _ids(completion, label)
    sampled = np.ones(len(ids), np.bool_)
    if isinstance(length, int):
        sampled[: max(len(ids) - length, 0)] = False
    if isinstance(mask, list) and len(mask) <= len(ids):  # of the last ids, as that of a response
        last = len(ids) - len(mask)
        without = (None, IGNORED) if set(mask) - {0, 1, None} else (None, 0)  # labels, or flags
        kept = [value not in without for value in mask]
        sampled[last:] &= np.array(kept, np.bool_)
        sampled[:last] = False
    ends = [*(np.flatnonzero(np.diff(sampled)) + 1).tolist(), len(ids)]
    parts = [Part(0, len(before), "prompt", False)] if len(before) else []
    begin = 0
    for end in ends if len(ids) else []:
        is_sampled = bool(sampled[begin])
        name = role or ("completion" if is_sampled else "context")
        parts.append(Part(len(before) + begin, len(before) + end, name, is_sampled))
        begin = end
    return np.concatenate([before, ids]), parts


def _joined(
    sequences: Sequence[tuple[np.ndarray, list[Part]]], parents: Sequence[object]
) -> list[tuple[np.ndarray, list[Part]]]:
    """One sequence for each last node of a graph: the nodes from its first one to it."""
    leaves = set(range(len(sequences))) - {p for p in parents if isinstance(p, int)}
    joined = []
    for leaf in sorted(leaves):
        path, at = [], leaf
        while isinstance(at, int) and 0 <= at < len(sequences) and len(path) <= len(sequences):
            path.append(at)
            at = parents[at]
        ids, parts, size = [], list[Part](), 0
        for node in reversed(path):
            ids.append(sequences[node][0])
            parts += [Part(size + b, size + e, role, is_sampled)
                      for b, e, role, is_sampled in sequences[node][1]]  # fmt: skip
            size += len(ids[-1])
        joined.append((np.concatenate(ids), parts))
    return joined


def _check_unread(label: str, row: dict[str, Any], layout: Layout) -> None:
    """Raise RobustokError for a list of integers beside the ids that are read."""
    paths = "|".join((layout.prompt, layout.completion, layout.mask)).split("|")
    read = {path.removeprefix("/").partition(".")[0] for path in paths}
    for item in (row, *_items(row, layout)):
        for name, value in item.items():
            if name not in read and _is_ids(value) and not _is_mask(name, value):
                raise RobustokError(
                    f"{label}: '{name}' holds integers beside the ids of the layout "
                    f"{layout.name}: give layout {layout.name!r}, another one, or the column of ids"
                )


def _is_mask(name: str, value: Sequence[int]) -> bool:
    return name in _NO_IDS or "mask" in name or set(value) <= {0, 1, IGNORED}


def _is_ids(value: object) -> TypeGuard[list[int]]:
    """Whether a value is a list of integers, which may be empty."""
    return isinstance(value, list) and set(map(type, value)) <= {int}


def _ids(value: object, label: str) -> np.ndarray:
    """A list of integers as int32 [n], -1 in place of those that do not fit."""
    if not _is_ids(value):
        raise RobustokError(f"{label}: expected a list of token ids, got {str(value)[:60]}")
    ids = np.asarray(value) if value else np.empty(0, np.int64)  # of any type that holds all
    return np.where((ids >= 0) & (ids < 1 << 31), ids, -1).astype(np.int32)


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    """The rows of a file, each with its name in an error."""
    find_inputs(path)  # an error for a missing file and for another format
    if kind_of(path) == ("parquet", ""):
        yield from _parquet_rows(path)
        return
    for number, value in json_lines(path):
        yield f"{path}, line {number}", value


def _parquet_rows(path: Path) -> Iterator[tuple[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            nested = [field.name for field in file.schema_arrow if pa.types.is_nested(field.type)]
            names = nested + [n for n in file.schema_arrow.names if n == "response_length"]
            for batch in file.iter_batches(_PARQUET_ROWS, columns=names):
                for row in batch.to_pylist():
                    yield f"{path}, row {number}", row
                    number += 1
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise RobustokError(f"{path}: cannot be read after {number} rows ({reason})") from error
