"""Prompts, attacks and answers: one record of each, and files of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from robustok.checks import check_ids
from robustok.errors import RobustokError
from robustok.evaluation.questions import check_keyed, plain_ids
from robustok.models.scored import CausalModel, Ids
from robustok.runtime.display import Progress, no_progress
from robustok.runtime.files import JsonObject, write_rows
from robustok.runtime.inputs import json_lines
from robustok.scoring.engine import scored_model
from robustok.tasks.item import Item, key_of, read_items
from robustok.tokenizer.vocabulary import Vocabulary

Judge = Callable[[str, str], Any]
_PROMPT_FIELDS = ("key", "id", "prompt", "query", "question")  # of a row: its key and its text


class Prompt(NamedTuple):
    """A text to attack, with further fields of its row.

    >>> Prompt("a", "hello world", {"target": " Sure"}).fields["target"]
    ' Sure'

    Args:
        key: its name, unique among the prompts.
        text: the text that is attacked.
        fields: further fields of its row, such as ``target``, ``choices`` and ``label``.
    """

    key: str
    text: str
    fields: JsonObject = {}  # noqa: RUF012

    @classmethod
    def of_item(cls, item: Item) -> Prompt:
        """The question of an item, with its options."""
        return cls(item.key, item.question, {"choices": list(item.choices), "label": item.label})


def read_prompts(path: str | Path, limit: int | None = None) -> list[Prompt]:
    """Prompts from JSON Lines.

    >>> from pathlib import Path
    >>> _ = Path("prompts.jsonl").write_text('{"prompt": "hello", "target": " world"}')
    >>> read_prompts("prompts.jsonl")
    [Prompt(key='0', text='hello', fields={'target': ' world'})]

    Args:
        path: the file. A row has ``prompt``, ``query`` or ``question``, and may have ``key`` or
            ``id`` and what its objective needs, such as ``target``, or ``choices`` and ``label``. A
            file of questions, whose first row has ``choices`` and a ``query`` or no ``prompt``, is
            read and worded by :func:`robustok.tasks.read_items`.
        limit: reads the first so many, by default all.

    Raises RobustokError, with the line, for a row without a prompt.
    """
    rows = [
        (f"{path}:{number}", row if isinstance(row, dict) else {})
        for number, row in islice(json_lines(Path(path)), limit)
    ]
    if not rows:
        raise RobustokError(f"{path} has no prompts: give one JSON object a line")
    first_row = rows[0][1]
    if "choices" in first_row and ("query" in first_row or "prompt" not in first_row):
        prompts = [Prompt.of_item(item) for item in read_items(path, limit=limit)]
    else:
        prompts = [_prompt(row, str(i)) for i, (_, row) in enumerate(rows)]
    for i, (where, row) in enumerate(rows):
        if not isinstance(prompts[i].text, str) or not prompts[i].text:
            raise RobustokError(
                f"{where}: the row has no prompt: give its text as prompt, query or question"
            )
        other_fields = {name: row[name] for name in row if name not in _PROMPT_FIELDS}
        prompts[i] = prompts[i]._replace(fields=other_fields | prompts[i].fields)
    return check_keyed("prompt", prompts)


def _prompt(row: JsonObject, key: str) -> Prompt:
    """The prompt of a row; ``key`` is the key of a row without one."""
    texts = (row[name] for name in ("prompt", "query", "question") if row.get(name))
    return Prompt(key_of(row, key), next(texts, ""))


class Step(NamedTuple):
    """A tokenization that scored higher than all before, or was the first success at that score.

    >>> Step([5, 6], -1.5, 7, 2).n_scored
    7

    Args:
        ids: the token ids, int32 [n].
        score: its score.
        n_scored: tokenizations scored by then.
        round: number of the batch that scored it; 0 for the start.
        log_probs: log-probabilities of the objective's continuations, such as the options of a
            question, in nats; empty for an objective without them.
    """

    ids: np.ndarray
    score: float
    n_scored: int
    round: int
    log_probs: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class Attack:
    """The tokenization of one text with the highest score that a search reached.

    >>> from robustok.attack import attack
    >>> item = items[1]
    >>> result = attack(model, vocab, item.question, item.choices, item.label, seed=0)
    >>> vocab.decode(result.ids) == vocab.decode(result.start)
    True

    Args:
        key: key of the item or prompt, or the text itself.
        text: the text.
        ids: the tokenization with the highest score, int32 [n].
        score: its score: for a question the greatest z of a wrong option minus that of the right
            one, where z is a probability or its logarithm.
        canonical_score: score of the canonical tokenization.
        success: whether the attack succeeded: for a question, whether the answer is wrong. None
            where the objective has no threshold.
        proved: whether the canonical tokenization and all those at the attack's distances from it
            were scored, and none succeeded: then "not broken" is proved for them, up to the model's
            floating point.
        reached_at: number of tokenizations scored at the first success; None for never.
        n_scored: tokenizations that the search scored, each counted once.
        steps: each :class:`Step` of the search, the start first.
        objective: name of what was maximized.
        settings: the attack's settings as a string.
        seed: seed of its random choices.
        overflowed: number of tokenizations that did not fit the model.
        canonical_ids: the canonical tokenization, int32 [m].
        vocabulary: fingerprint of the vocabulary that the ids belong to.
        prefix: ids before the text, such as those of a chat template.
        suffix: ids after it.
        fields: further fields of the prompt, such as ``target``, or ``choices`` and ``label``.
    """

    key: str
    text: str
    ids: np.ndarray
    score: float
    canonical_score: float
    success: bool | None
    proved: bool
    reached_at: int | None
    n_scored: int
    steps: tuple[Step, ...]
    objective: str
    settings: str
    seed: int
    overflowed: int
    canonical_ids: np.ndarray
    vocabulary: str
    prefix: list[int]
    suffix: list[int]
    fields: JsonObject

    @property
    def start(self) -> np.ndarray:
        """The tokenization where the attack began, int32 [m]."""
        return self.steps[0].ids

    @property
    def moves(self) -> list[Step]:
        """The start, and the best tokenization of each round that gained."""
        next_steps = (*self.steps[1:], None)
        pairs = zip(self.steps, next_steps, strict=True)
        return [step for step, later in pairs if later is None or later.round > step.round]

    @property
    def margins(self) -> list[float]:
        """The score at the start and after each step of the search that gained."""
        return [step.score for step in self.moves]

    @property
    def log_probs(self) -> tuple[float, ...]:
        """Log-probabilities of the objective's continuations under ``ids``, in nats."""
        return self.steps[-1].log_probs

    def as_row(self) -> JsonObject:
        """Plain lists and numbers, ready for JSON."""
        row = {field.name: getattr(self, field.name) for field in fields(self)}
        row |= {name: row[name].tolist() for name in ("ids", "canonical_ids")}
        row |= {name: finite_or_none(row[name]) for name in ("score", "canonical_score")}
        row["steps"] = [
            step._asdict()
            | {
                "ids": step.ids.tolist(),
                "score": finite_or_none(step.score),
                "log_probs": list(step.log_probs),
            }
            for step in self.steps
        ]
        return row

    @classmethod
    def from_row(cls, row: JsonObject) -> Attack:
        """The attack of a ``row`` of :meth:`as_row`; raises RobustokError for another row."""
        try:
            values = {field.name: row[field.name] for field in fields(cls)}
            values |= {name: check_ids(row[name]) for name in ("ids", "canonical_ids")}
            values |= {name: _score(row[name]) for name in ("score", "canonical_score")}
            values["steps"] = tuple(
                Step(
                    check_ids(step["ids"]),
                    _score(step["score"]),
                    step["n_scored"],
                    step["round"],
                    tuple(step["log_probs"]),
                )
                for step in row["steps"]
            )
            for ids in (values["ids"], row["prefix"], row["suffix"]):
                if check_ids(ids).min(initial=0) < 0:
                    raise RobustokError("an id is negative")
        except KeyError as error:
            raise RobustokError(f"it has no field {error}") from None
        except (TypeError, ValueError) as error:
            raise RobustokError(str(error)) from None
        if not len(values["ids"]):
            raise RobustokError("it has no ids")
        return cls(**values)

    @property
    def outcome(self) -> str:
        """Both scores, and whether the attack succeeded, in words."""
        outcome = {True: ", broken", False: ", held", None: ""}[self.success]
        outcome += ", proved" if self.proved else ""
        if self.reached_at == 1 and np.array_equal(self.start, self.canonical_ids):
            outcome = ", broken by the canonical tokenization itself"
        return f"{self.canonical_score:+.3f} → {self.score:+.3f}{outcome}"

    def __str__(self) -> str:
        return f"{self.objective} {self.outcome}, {self.n_scored} tokenizations scored"


def worst_attacks(parts: Sequence[Sequence[Attack]]) -> list[Attack]:
    """The worst attack on each prompt: successful ones first, then the highest score.

    >>> from robustok.attack import as_objective, attack_prompts
    >>> length = as_objective(lambda rows: rows.lengths, name="length", threshold=9)
    >>> prompts = [Prompt("a", "hello world")]
    >>> short, long = (attack_prompts(vocab, prompts, lambda _: length, steps=n, seed=0)
    ...                for n in (0, 3))
    >>> worst_attacks([short, long])[0].score == long[0].score
    True

    ``parts`` are the attacks of each search, all on the same prompts in the same order.
    """
    return [
        max(attacks, key=lambda attack: (bool(attack.success), attack.score))
        for attacks in zip(*parts, strict=True)
    ]


def finite_or_none(score: float) -> float | None:
    """A score for JSON; None for minus infinity, an excluded tokenization."""
    return score if math.isfinite(score) else None


def _score(value: float | None) -> float:
    """A score read from JSON; None is minus infinity."""
    return -math.inf if value is None else value


def write_attacks(path: str | Path, attacks: Sequence[Attack]) -> None:
    """Write ``attacks`` as JSON Lines to the file ``path``, as a whole.

    >>> from robustok.attack import attack_items
    >>> write_attacks("a.jsonl", attack_items(model, vocab, items, seed=0).attacks)
    >>> read_attacks("a.jsonl")[1].text
    'hello world, is 1 odd? Answer:'
    """
    write_rows(Path(path), [attack.as_row() for attack in attacks])


def read_attacks(path: str | Path) -> list[Attack]:
    """The attacks of the file ``path`` of :func:`write_attacks`.

    >>> from robustok.attack import attack_items
    >>> write_attacks("b.jsonl", attack_items(model, vocab, items, seed=0).attacks)
    >>> len(read_attacks("b.jsonl"))
    8

    Raises RobustokError, with the line, for a row that is no attack.
    """
    attacks = []
    for number, row in json_lines(Path(path)):
        try:
            attacks.append(Attack.from_row(row))
        except RobustokError as error:
            raise RobustokError(f"{path}:{number}: not an attack: {error}") from None
    if not attacks:
        raise RobustokError(f"{path} has no attacks: give a file that an attack has written")
    return attacks


@dataclass(frozen=True)
class Answers:
    """The answers of a model to a prompt tokenized canonically and by an attack.

    >>> Answers("a", "hi", "hello", "bye").as_row()["attacked"]
    'bye'

    Args:
        key: name of the prompt.
        text: the prompt.
        canonical: answer to its canonical tokenization.
        attacked: answer to the attacked one.
        canonical_verdict: the judge's number for ``canonical``; None without a judge.
        attacked_verdict: the judge's number for ``attacked``.
        seed: seed of the attack; None where it is unknown.
    """

    key: str
    text: str
    canonical: str
    attacked: str
    canonical_verdict: float | None = None
    attacked_verdict: float | None = None
    seed: int | None = None

    def as_row(self) -> JsonObject:
        """A plain dictionary, ready for JSON."""
        return asdict(self)


def greedy_answer(
    model: CausalModel,
    vocab: Vocabulary,
    ids: Ids,
    *,
    prefix: Ids | None = None,
    suffix: Ids | None = None,
    max_new_tokens: int = 64,
) -> str:
    """The model's greedy answer to one tokenization.

    >>> isinstance(greedy_answer(model, vocab, vocab.encode("hello"), max_new_tokens=2), str)
    True

    Args:
        model: any causal language model of transformers, or one that is served.
        vocab: the model's vocabulary.
        ids: the tokenization of the prompt.
        prefix: ids before it, such as those of a chat template; by default none.
        suffix: ids after it; by default none.
        max_new_tokens: greatest number of generated tokens, at least 1.

    Generation stops at the model's end tokens. Special tokens are left out of the answer.

    Raises RobustokError where prompt and answer do not fit the model's longest input.
    """
    all_ids = [*plain_ids(prefix), *plain_ids(ids), *plain_ids(suffix)]
    scored = scored_model(model)
    limit = scored.max_length
    if limit is not None and len(all_ids) + max_new_tokens > limit:
        raise RobustokError(
            f"{len(all_ids)} tokens and {max_new_tokens} to generate are more than the model's "
            f"{limit} positions: shorten the prompt or generate fewer"
        )
    answer = scored.continuation(all_ids, max_new_tokens)
    ordinary = [i for i in answer if i < len(vocab.tokens) and i not in vocab.special]
    return vocab.decode_bytes(ordinary).decode("utf-8", "replace")


def generate_answers(
    model: CausalModel,
    vocab: Vocabulary,
    attacks: Sequence[Attack],
    *,
    max_new_tokens: int = 64,
    judge: Judge | None = None,
    progress: Progress = no_progress,
) -> list[Answers]:
    """Answers to the canonical and the attacked ids of each prompt, between prefix and suffix.

    >>> from robustok.attack import as_objective, attack_prompts
    >>> length = as_objective(lambda rows: rows.lengths, name="length")
    >>> attacks = attack_prompts(vocab, [Prompt("a", "hello")], lambda _: length, seed=0)
    >>> judge = lambda prompt, answer: len(answer) > 3
    >>> generate_answers(model, vocab, attacks, judge=judge, max_new_tokens=2)[0].text
    'hello'

    ``judge``, by default none, is called with (prompt, answer) and returns a number or a truth
    value, ``progress`` with (prompts done, prompts). ``attacks`` are the attacks; ``model``,
    ``vocab`` and ``max_new_tokens`` are those of :func:`greedy_answer`.

    Raises RobustokError as :func:`greedy_answer`, and where the judge gives no number.
    """
    rows: list[Answers] = []
    for attack in attacks:
        canonical, attacked = (
            greedy_answer(
                model,
                vocab,
                ids,
                prefix=attack.prefix,
                suffix=attack.suffix,
                max_new_tokens=max_new_tokens,
            )
            for ids in (attack.canonical_ids, attack.ids)
        )
        before, after = (_verdict(judge, attack.text, answer) for answer in (canonical, attacked))
        rows.append(
            Answers(attack.key, attack.text, canonical, attacked, before, after, attack.seed)
        )
        progress(len(rows), len(attacks))
    return rows


def _verdict(judge: Judge | None, text: str, answer: str) -> float | None:
    if judge is None:
        return None
    verdict = judge(text, answer)
    try:
        number = float(verdict)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise RobustokError(
            f"the judge gave {verdict!r}, which is no number: return a number or True or False"
        )
    return number
