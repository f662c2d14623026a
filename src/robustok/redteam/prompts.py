"""Prompts from a file, and the objective of each from a name: what the command line needs."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustok.errors import RobustokError, nearest
from robustok.evaluation.questions import Ids
from robustok.files import json_lines
from robustok.redteam.attacks import Prompt, check_prompts
from robustok.redteam.causal import (
    REFUSALS,
    Margin,
    TargetLikelihood,
    guard_probability,
    refusal_suppression,
)
from robustok.redteam.classifier import ClassifierLogit
from robustok.redteam.objective import Objective, as_objective
from robustok.redteam.perplexity import WithinPerplexity

if TYPE_CHECKING:
    from robustok.vocabulary import Vocabulary

NAMED_OBJECTIVES = ("margin", "target", "refusal", "guard", "classifier")


def read_prompts(path: str | Path, limit: int | None = None) -> list[Prompt]:
    """Prompts from JSON Lines.

    >>> from pathlib import Path
    >>> _ = Path("prompts.jsonl").write_text('{"prompt": "hello", "target": " world"}')
    >>> read_prompts("prompts.jsonl")
    [Prompt(key='0', text='hello', fields={'target': ' world'})]

    Args:
        path: the file. A row has ``prompt`` or ``query``, and may have ``key`` and whatever its
            objective needs: ``target``, or ``choices`` and ``label``.
        limit: reads the first so many, by default all.

    Raises RobustokError, with the line, for a row without a prompt.
    """
    prompts: list[Prompt] = []
    for number, row in json_lines(Path(path)):
        if limit is not None and len(prompts) >= limit:
            break
        row = dict(row) if isinstance(row, dict) else {}
        text = row.pop("prompt", None) or row.pop("query", None)
        if not isinstance(text, str):
            raise RobustokError(f"{path}:{number}: the row has no prompt: give one as text")
        prompts.append(Prompt(str(row.pop("key", len(prompts))), text, row))
    return check_prompts(prompts)


@dataclass(frozen=True)
class ObjectiveOptions:
    """What a named objective is made with, beside the model and the vocabulary.

    >>> ObjectiveOptions("target", target=" world").target
    ' world'

    Args:
        name: one of ``margin``, ``target``, ``refusal``, ``guard`` and ``classifier``, or
            ``MODULE:FUNCTION``, a function that takes a :class:`robustok.Ragged` of candidates and
            returns a number for each.
        target: the response of ``target``, where a prompt has no field ``target``.
        wanted: openings of an answer (``refusal``), or safe verdicts (``guard``).
        unwanted: openings of a refusal, or unsafe verdicts.
        flagged: labels that a ``classifier`` must not give.
        flag_probability: least probability at which a guard or classifier flags a text.
        threshold: log-probability above which ``target`` succeeds; None for never.
        perplexity_quantile: quantile of the perplexities of drawn tokenizations that candidates
            stay within; None for no limit.
        seed: seed of these draws.
    """

    name: str
    target: str | None = None
    wanted: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    flagged: tuple[str, ...] = ()
    flag_probability: float = 0.5
    threshold: float | None = None
    perplexity_quantile: float | None = None
    seed: int = 0


def objective_by_name(
    model: Any,
    vocab: Vocabulary,
    options: ObjectiveOptions,
    *,
    prefix: Ids | None = None,
    suffix: Ids | None = None,
) -> Callable[[Prompt], Objective]:
    """The objective of each prompt.

    >>> objective = objective_by_name(model, vocab, ObjectiveOptions("target", target=" world"))
    >>> objective(Prompt("a", "hello")).name
    'target-likelihood'

    Args:
        model: the attacked model: a causal one, or a sequence classifier for ``classifier``.
        vocab: its vocabulary.
        options: which objective, and what it needs.
        prefix: ids before every prompt; by default none.
        suffix: ids after every prompt; by default none.

    Raises RobustokError for an unknown name, and for a prompt without what the objective needs.
    """
    around: dict[str, Any] = {"prefix": prefix, "suffix": suffix}
    name = options.name
    if ":" in name:
        fixed: Objective = as_objective(function_named(name), threshold=options.threshold)
    elif name == "refusal":
        refusals = options.unwanted or REFUSALS
        fixed = refusal_suppression(model, vocab, refusals, options.wanted, **around)
    elif name == "guard":
        verdicts = (options.wanted or ("safe",), options.unwanted or ("unsafe",))
        chance = options.flag_probability
        fixed = guard_probability(model, vocab, *verdicts, flag_probability=chance, **around)
    elif name == "classifier":
        labels = [int(label) if label.isdecimal() else label for label in options.flagged]
        chance = options.flag_probability
        fixed = ClassifierLogit(model, labels, flag_probability=chance, **around)
    elif name in ("target", "margin"):
        make = partial(_of_prompt, model=model, vocab=vocab, options=options, around=around)
        return partial(_constrained, make=make, model=model, vocab=vocab, options=options,
                       prefix=prefix)  # fmt: skip
    else:
        raise RobustokError(f"unknown objective '{name}': {nearest(name, NAMED_OBJECTIVES)}")
    return partial(_constrained, make=lambda prompt: fixed, model=model, vocab=vocab,
                   options=options, prefix=prefix)  # fmt: skip


def _of_prompt(
    prompt: Prompt, model: Any, vocab: Vocabulary, options: ObjectiveOptions, around: dict[str, Any]
) -> Objective:
    if options.name == "target":
        target = prompt.fields.get("target", options.target)
        if not isinstance(target, str):
            raise RobustokError(f"prompt '{prompt.key}' has no target: give it a field or --target")
        return TargetLikelihood(model, vocab, target, threshold=options.threshold, **around)
    choices, label = prompt.fields.get("choices"), prompt.fields.get("label")
    if not isinstance(choices, Sequence) or isinstance(choices, str) or not isinstance(label, int):
        raise RobustokError(
            f"prompt '{prompt.key}' has no answer options: give it the fields choices and label"
        )
    return Margin(model, vocab, list(choices), label, **around)


def _constrained(
    prompt: Prompt, make: Callable[[Prompt], Objective], model: Any, vocab: Vocabulary,
    options: ObjectiveOptions, prefix: Ids | None,
) -> Objective:  # fmt: skip
    objective, quantile = make(prompt), options.perplexity_quantile
    if quantile is None:
        return objective
    if options.name == "classifier":
        raise RobustokError("a classifier gives no perplexity: leave the quantile out")
    return WithinPerplexity(
        objective, model, vocab, prompt.text, quantile=quantile, prefix=prefix, seed=options.seed
    )


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
