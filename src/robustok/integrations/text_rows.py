"""Rows with a column of text, encoded canonically while they are collated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from robustok.errors import RobustokError

Row = dict[str, Any]


class EncodeText:
    """Rows with ``input_ids``; rows of text get them from the tokenizer, cut to ``max_length``.

    >>> from transformers import PreTrainedTokenizerFast
    >>> fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    >>> EncodeText(fast, "text", 8)([{"text": "hello world"}])
    [{'input_ids': [276, 275], 'labels': [276, 275]}]

    Raises RobustokError for rows that have neither.
    """

    def __init__(self, tokenizer: Any, column: str, max_length: int | None) -> None:
        self.tokenizer, self.column, self.max_length = tokenizer, column, max_length

    def __call__(self, rows: Sequence[Row]) -> list[Row]:
        return [row if row.get("input_ids") is not None else self._encoded(row) for row in rows]

    def _encoded(self, row: Row) -> Row:
        if not isinstance(row.get(self.column), str):
            raise RobustokError(
                f"rows with {', '.join(sorted(row)) or 'no columns'} cannot be perturbed: give "
                f"rows with input_ids, or with text in a column '{self.column}'"
            )
        canonical = getattr(self.tokenizer, "wrapped_tokenizer", self.tokenizer)
        options = {"truncation": True, "max_length": self.max_length} if self.max_length else {}
        ids = canonical(row[self.column], **options)["input_ids"]
        return {"input_ids": ids, "labels": list(ids)}
