"""The step `DocumentTokenizer` of datatrove with drawn ids.

A class of a script's own would not do: datatrove's worker processes import it by its module.
"""

from __future__ import annotations

from typing import Any

from datatrove.pipeline.tokens import DocumentTokenizer  # type: ignore[import-not-found]

from robustok.integrations.stochastic import stochastic


class StochasticDocumentTokenizer(DocumentTokenizer):
    """Tokenize the documents of a pipeline with drawn ids, and write them as `DocumentTokenizer`.

    ``StochasticDocumentTokenizer("out/", "tokenizer.json", scheme="uniform", draw_seed=0)`` is a
    step of a pipeline.

    Args:
        *arguments: those of `DocumentTokenizer`; its ``seed`` shuffles documents.
        scheme: spec of the scheme.
        draw_seed: any integer.
        epoch: each value gives other draws.
        **options: those of `DocumentTokenizer`.

    A draw depends on the document, ``draw_seed`` and ``epoch`` only, not on tasks and workers.
    """

    name = "Stochastic document tokenizer"

    def __init__(
        self, *arguments: Any, scheme: str, draw_seed: int, epoch: int = 0, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.scheme, self.draw_seed, self.epoch = scheme, draw_seed, epoch
        self._drawing: Any = None

    @property
    def tokenizer(self) -> Any:  # type: ignore[override]
        if self._drawing is None:
            self._drawing = stochastic(super().tokenizer, self.scheme, seed=self.draw_seed)
            self._drawing.set_epoch(self.epoch)
        return self._drawing
