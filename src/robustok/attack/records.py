"""Prompts and attacks: one record of each, files of them, and the curves of many attacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np

from robustok.checks import check_ids
from robustok.errors import RobustokError
from robustok.evaluation.intervals import curve_of
from robustok.evaluation.questions import check_keyed
from robustok.runtime.files import JsonObject, json_lines, write_rows
from robustok.scoring.engine import LOG_ZERO
from robustok.tasks.item import Item
from robustok.tokenizer.vocabulary import Vocabulary

_EXCLUDED = LOG_ZERO  # score in files of what may not be chosen: JSON has no minus infinity


class Prompt(NamedTuple):
    """A text to attack, with what a file says about it.

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
        path: the file. A row has ``prompt``, ``query`` or ``question``, and may have ``key`` and
            what its objective needs: ``target``, or ``choices`` and ``label``.
        limit: reads the first so many, by default all.

    Raises RobustokError, with the line, for a row without a prompt.
    """
    prompts: list[Prompt] = []
    for number, row in json_lines(Path(path)):
        if limit is not None and len(prompts) >= limit:
            break
        row = dict(row) if isinstance(row, dict) else {}
        text = row.pop("prompt", None) or row.pop("query", None) or row.pop("question", None)
        if not isinstance(text, str):
            raise RobustokError(f"{path}:{number}: the row has no prompt: give one as text")
        key = row.pop("key", None)
        prompts.append(Prompt(str(len(prompts) if key is None else key), text, row))
    return check_keyed("prompt", prompts)


class Step(NamedTuple):
    """A tokenization that scored higher than all before it.

    >>> Step([5, 6], -1.5, 7, 2).n_scored
    7

    Args:
        ids: the token ids, int32 [n].
        score: its score.
        n_scored: tokenizations scored by then.
        round: number of the batch it was scored in, the start's being 0.
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

    A record is complete enough to be replayed on another model.

    Args:
        key: key of the item or prompt, or the text itself.
        text: the text.
        ids: the tokenization with the highest score, int32 [n].
        score: its score: for a question the greatest z of a wrong option minus that of the right
            one, where z is a probability or its logarithm.
        canonical_score: score of the canonical tokenization.
        success: whether the attack succeeded: for a question, whether the answer is wrong. None
            where the objective has no threshold.
        reached_at: number of tokenizations scored at the first success; None for never.
        n_scored: tokenizations scored, each counted once.
        steps: each tokenization that scored higher than all before it, the start first.
        objective: name of what was maximized.
        settings: the attack's settings as a string.
        seed: seed of its random choices.
        overflowed: number of tokenizations that did not fit the model.
        canonical_ids: the canonical tokenization, int32 [m].
        lengths: number of bytes of each token of ``ids``.
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
    reached_at: int | None
    n_scored: int
    steps: tuple[Step, ...]
    objective: str
    settings: str
    seed: int
    overflowed: int
    canonical_ids: np.ndarray
    lengths: list[int]
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
        after = (*self.steps[1:], None)
        pairs = zip(self.steps, after, strict=True)
        return [step for step, later in pairs if later is None or later.round > step.round]

    @property
    def margins(self) -> list[float]:
        """The score at the start and after each step of the search that gained."""
        return [step.score for step in self.moves]

    @property
    def log_probs(self) -> tuple[float, ...]:
        """Log-probabilities of the objective's continuations under ``ids``, in nats."""
        return self.steps[-1].log_probs

    def score_after(self, n_scored: int) -> float:
        """The highest score among the first ``n_scored`` tokenizations, at least 1."""
        reached = [step.score for step in self.steps if step.n_scored <= n_scored]
        return reached[-1] if reached else -np.inf

    def as_row(self) -> JsonObject:
        """Plain lists and numbers, ready for JSON; :meth:`from_row` takes it."""
        row = {one.name: getattr(self, one.name) for one in fields(self)}
        row |= {name: row[name].tolist() for name in ("ids", "canonical_ids")}
        row |= {name: max(row[name], _EXCLUDED) for name in ("score", "canonical_score")}
        row["steps"] = [
            step._asdict()
            | {
                "ids": step.ids.tolist(),
                "score": max(step.score, _EXCLUDED),
                "log_probs": list(step.log_probs),
            }
            for step in self.steps
        ]
        return row

    @classmethod
    def from_row(cls, row: JsonObject) -> Attack:
        """The attack of a ``row`` of :meth:`as_row`, also after being read from a file.

        Raises RobustokError for a row that is no attack.
        """
        try:
            values = {one.name: row[one.name] for one in fields(cls)}
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
        if not len(values["ids"]) or len(values["lengths"]) != len(values["ids"]):
            raise RobustokError("lengths must be given for each of at least one id")
        return cls(**values)

    def __str__(self) -> str:
        gain = f"{self.objective} {self.canonical_score:+.3f} → {self.score:+.3f}"
        outcome = {True: ", broken", False: ", held", None: ""}[self.success]
        return f"{gain}{outcome}, {self.n_scored} tokenizations scored"


def _score(value: float) -> float:
    """A score of a file, as the search gave it."""
    return -np.inf if value <= _EXCLUDED else value


def write_attacks(path: str | Path, attacks: Sequence[Attack]) -> None:
    """Write attacks as JSON Lines.

    >>> from robustok.attack import as_objective, attack_prompt
    >>> objective = as_objective(lambda rows: rows.lengths, name="length")
    >>> write_attacks("a.jsonl", [attack_prompt(vocab, "hello", objective, seed=0)])
    >>> read_attacks("a.jsonl")[0].text
    'hello'

    Args:
        path: the file, written as a whole.
        attacks: the attacks.
    """
    write_rows(Path(path), [attack.as_row() for attack in attacks])


def read_attacks(path: str | Path) -> list[Attack]:
    """The attacks of a file of :func:`write_attacks`, or of a resume file of an attack.

    >>> from robustok.attack import as_objective, attack_prompt
    >>> objective = as_objective(lambda rows: rows.lengths, name="length")
    >>> write_attacks("b.jsonl", [attack_prompt(vocab, "hello", objective, seed=0)])
    >>> len(read_attacks("b.jsonl"))
    1

    Args:
        path: the file.

    Raises RobustokError, with the line, for a row that is no attack.
    """
    attacks = []
    for number, row in json_lines(Path(path)):
        if number == 1 and isinstance(row, dict) and "config" in row:
            continue
        try:
            attacks.append(Attack.from_row(row))
        except RobustokError as error:
            raise RobustokError(f"{path}:{number}: not an attack: {error}") from None
    if not attacks:
        raise RobustokError(f"{path} has no attacks: give a file that an attack has written")
    return attacks


def success_curve(attacks: Sequence[Attack], limits: Sequence[int]) -> list[dict[str, float]]:
    """Share of the prompts broken by the number of tokenizations scored, with 95% intervals.

    >>> from robustok.attack import as_objective, attack_prompt
    >>> length = as_objective(lambda rows: rows.lengths, name="length", threshold=2)
    >>> attacks = [attack_prompt(vocab, "hello world", length, seed=0)]
    >>> success_curve(attacks, [1, 100])[0]["success"]
    0.0

    Args:
        attacks: the attacks, all with a threshold.
        limits: numbers of tokenizations scored.

    Raises RobustokError for an attack whose objective has no threshold.
    """
    if any(attack.success is None for attack in attacks):
        raise RobustokError("the objective has no threshold, so nothing counts as a success")
    return curve_of("success", [attack.reached_at for attack in attacks], limits)


def ids_in(record: Attack, vocab: Vocabulary) -> np.ndarray:
    """The attack's tokenization in any vocabulary, int32.

    >>> from robustok.attack import as_objective, attack_prompt
    >>> objective = as_objective(lambda rows: rows.lengths, name="length")
    >>> write_attacks("c.jsonl", [attack_prompt(vocab, "hello", objective, seed=0)])
    >>> vocab.decode(ids_in(read_attacks("c.jsonl")[0], vocab))
    'hello'

    Args:
        record: the attack.
        vocab: the vocabulary to carry it to.

    In another vocabulary than the attacked one, the text is cut at the same bytes. A part that is
    no token there is cut into the longest tokens from its left.

    Raises RobustokError where the other vocabulary normalizes the text to other bytes.
    """
    if record.vocabulary == vocab.fingerprint:
        return check_ids(record.ids, vocab.size)
    data = vocab.decode_bytes(vocab.encode(record.text))
    if sum(record.lengths) != len(data):
        raise RobustokError(
            f"attack '{record.key}' cuts {sum(record.lengths)} bytes, but the other vocabulary "
            f"reads its text as {len(data)}: attack that model itself"
        )
    by_bytes = vocab.derived(
        "ids by bytes",
        lambda: {spelled: i for i, spelled in enumerate(vocab.tokens) if vocab.ordinary[i]},
    )
    ids: list[int] = []
    begin = 0
    for length in record.lengths:
        ids += _split(data[begin : begin + length], by_bytes)
        begin += length
    return np.asarray(ids, np.int32)


def _split(part: bytes, by_bytes: dict[bytes, int]) -> list[int]:
    """The longest tokens of a part from its left."""
    ids, begin = [], 0
    while begin < len(part):
        end = next((e for e in range(len(part), begin, -1) if part[begin:e] in by_bytes), None)
        if end is None:
            raise RobustokError(f"the other vocabulary has no token for byte {part[begin]:#x}")
        ids.append(by_bytes[part[begin:end]])
        begin = end
    return ids
