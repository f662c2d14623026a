"""Certificates: is a model's answer the same under every tokenization within a distance?

A search that finds nothing proves nothing. Where the tokenizations within distance k of the
canonical one are few enough they are all scored, and the answer is certain, up to the model's own
floating point. Where they are too many, uniform draws from that same set bound the share of them
that changes the answer (Clopper and Pearson 1934). The attack's result stands beside either.

What a certificate is not: a statement about other wordings, nor, where it is a bound, about the
worst tokenization. Each bound holds for its input at the stated confidence, not for all inputs
jointly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from robustok.attack.engine import AttackedModel, question_prompts, run_in_groups
from robustok.attack.records import Attack, Prompt
from robustok.attack.search import AttackedText, Scorer, Trial
from robustok.attack.settings import GROUP, AttackSettings, CertifySettings
from robustok.checks import check_integer, check_seed
from robustok.errors import RobustokError
from robustok.evaluation.intervals import clopper_pearson_upper
from robustok.evaluation.questions import NO_FIT, Ids, Prefix, margins
from robustok.lattice import distance
from robustok.ragged import Ragged
from robustok.runtime.display import Progress, no_progress
from robustok.runtime.files import JsonFields, JsonObject
from robustok.scoring import Request, score_many
from robustok.tasks.item import Item
from robustok.tokenizer.vocabulary import Vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedModel

VERDICTS = ("same", "open", "flips", "attacked")
_SCALE = "log-probability"  # of the attack's margin: probabilities of long options underflow


@dataclass(frozen=True, eq=False)
class Certificate:
    """Result for one question's answer under all tokenizations within a distance.

    >>> from robustok.attack import certify
    >>> item = items[0]
    >>> certify(model, vocab, item.question, item.choices, distance=2, seed=0).method
    'enumeration'

    Args:
        key: key of the item, or the text itself.
        distance: greatest distance from the canonical tokenization; None for all tokenizations.
        answer: index of the option that the canonical tokenization gets, from 0.
        tokenizations: exact number of tokenizations at distance 0 to ``distance``, the canonical
            one included.
        method: ``"enumeration"`` if all of them were scored, ``"sampling"`` for uniform draws with
            replacement.
        n_scored: number of tokenizations scored.
        flips: number of those with another answer.
        upper: greatest share of the set with another answer: exact for "enumeration", a
            Clopper-Pearson upper bound at ``confidence`` for "sampling".
        confidence: probability that the bound holds, between 0 and 1.
        margin: greatest log-probability of another option minus that of the answer among those
            scored, in nats.
        attacked: whether the greedy attack within the set changes the answer; None if it was not
            run.
        attack_n_scored: number of tokenizations that the attack scored.
        witness: ids of a tokenization in the set with another answer, None if none is known.
        witness_distance: distance of the witness from the canonical tokenization, None without one.
    """

    key: str
    distance: int | None
    answer: int
    tokenizations: int
    method: str
    n_scored: int
    flips: int
    upper: float
    confidence: float
    margin: float
    attacked: bool | None
    attack_n_scored: int
    witness: tuple[int, ...] | None
    witness_distance: int | None

    @property
    def verdict(self) -> str:
        """One of ``VERDICTS``.

        "same": certified. "open": no other answer was drawn; ``upper`` bounds their share.
        "flips": another answer exists, but the attack did not reach it. "attacked": the attack
        reached another answer.
        """
        if self.attacked:
            return "attacked"
        if self.witness is not None:
            return "flips"
        return "same" if self.method == "enumeration" else "open"

    def __str__(self) -> str:
        where = "" if self.distance is None else f" within distance {self.distance}"
        number = self.tokenizations
        count = f"{number:,}" if number < 10**9 else f"10^{Decimal(number).adjusted()}"
        summary = {
            "same": f"certified: the same answer under all {count} tokenizations{where}",
            "open": f"open: no other answer in {self.n_scored:,} uniform draws from the "
            f"{count} tokenizations{where}",
            "flips": f"broken{where}: another answer exists, the attack missed it",
            "attacked": f"broken{where}: the attack finds another answer",
        }[self.verdict]
        if self.verdict == "same":
            return summary
        share = f"{self.upper:.2%} of {count} have another"
        if self.method == "sampling":
            share = f"at most {share}, at {self.confidence:.0%} confidence"
        if self.witness is None:
            return f"{summary}; {share}"
        return f"{summary} (at distance {self.witness_distance}); {share}"

    def as_row(self) -> JsonObject:
        """Everything as plain JSON, the exact count as a string; :meth:`from_row` takes it."""
        count = str(Decimal(self.tokenizations))  # of any length, where str() of an int has a limit
        return asdict(self) | {"tokenizations": count, "verdict": self.verdict}

    @classmethod
    def from_row(cls, row: JsonFields) -> Certificate:
        """The certificate of a ``row`` of :meth:`as_row`, also after being read from a file."""
        values = {name: row[name] for name in cls.__dataclass_fields__}
        values["tokenizations"] = int(Decimal(values["tokenizations"]))
        values["witness"] = None if values["witness"] is None else tuple(values["witness"])
        return cls(**values)


@dataclass(frozen=True, eq=False)
class Certification:
    """The certificates of a task: for each item one for each distance, in that order.

    >>> from robustok.attack import certify_items
    >>> result = certify_items(model, vocab, items, distances=(2, 4), seed=0)
    >>> result.n, len(result.certificates)
    (8, 16)

    Args:
        certificates: the certificates, [items · distances].
        settings: how they were made.
        seed: seed of the draws.
        overflowed: number of tokenizations that did not fit the model.
    """

    certificates: tuple[Certificate, ...]
    settings: CertifySettings
    seed: int
    overflowed: int = 0

    @property
    def n(self) -> int:
        """Number of items that fit the model."""
        return len(self.certificates) // len(self.settings.distances)

    def table(self) -> list[JsonObject]:
        """A row for each distance: the number of items of every verdict.

        >>> from robustok.attack import certify_items
        >>> certification = certify_items(model, vocab, items, distances=(2,), seed=0)
        >>> list(certification.table()[0])
        ['distance', 'n', 'same', 'open', 'flips', 'attacked', 'open_upper', 'confidence', 'seed']

        The attack fails on same + open + flips items; only same is proven. ``open_upper`` is the
        largest bound of the open items.

        Raises RobustokError where no item fits the model.
        """
        if not self.certificates:
            raise RobustokError(f"no item fits the model's max_length: {NO_FIT}")
        rows = []
        for at in self.settings.distances:
            certificates = [c for c in self.certificates if c.distance == at]
            row: JsonObject = {"distance": "all" if at is None else at, "n": len(certificates)}
            for verdict in VERDICTS:
                row[verdict] = sum(c.verdict == verdict for c in certificates)
            bounds = [c.upper for c in certificates if c.verdict == "open"]
            row["open_upper"] = max(bounds) if bounds else None
            rows.append(row | {"confidence": self.settings.confidence, "seed": self.seed})
        return rows


def certify(
    model: PreTrainedModel,
    vocab: Vocabulary,
    text: str,
    options: Sequence[str | Ids],
    *,
    distance: int | None,
    settings: CertifySettings | None = None,
    seed: int,
    prefix: Prefix = None,
    suffix: Ids | None = None,
    overflow: str = "error",
    **changes: object,
) -> Certificate:
    """Certify one question's answer under the tokenizations within a distance, or under all.

    >>> item = items[0]
    >>> done = certify(model, vocab, item.question, item.choices, distance=2, seed=0)
    >>> done.method, done.tokenizations, done.flips
    ('enumeration', 3, 0)

    Args:
        model: any causal language model of transformers.
        vocab: the model's vocabulary.
        text: the question, not empty.
        options: the options, at least two: strings, which are tokenized canonically, or ids.
        distance: greatest distance from the canonical tokenization, at least 1; None for all
            tokenizations.
        settings: how to certify; its distances have no effect here.
        seed: any integer; it decides the draws.
        overflow: what to do with a tokenization that does not fit the model: ``"error"`` (default);
            ``"left"``: the start of the prompt is cut off; ``"canonical"``: the canonical
            tokenization is scored in its place, as a model behind that policy would; ``"drop"``:
            refuses the text.
        changes: fields of :class:`CertifySettings` in place of those of ``settings``, such as
            ``limit``, ``draws``, ``confidence`` and ``attack``.

    Scored as in :func:`attack`, whose ``prefix`` and ``suffix`` are the same:
    z = p(option | prefix, tokenization, suffix).

    Raises RobustokError for fewer than two options, for settings out of range, and by ``overflow``.
    Source: Clopper and Pearson (1934) for the bound.
    """
    seed = check_integer("seed", seed)
    settings = (settings or CertifySettings()).replaced(**changes | {"distances": (distance,)})
    attacked_model = AttackedModel(model, vocab, prefix, suffix, overflow, _SCALE)
    prompt = Prompt(text, text, {"choices": options, "label": 0})
    certificates, _ = _certified(attacked_model, [prompt], settings, seed)
    if not certificates:
        raise RobustokError(f"the text does not fit the model's max_length: {NO_FIT}")
    return certificates[0]


def certify_items(
    model: PreTrainedModel,
    vocab: Vocabulary,
    items: Sequence[Item],
    *,
    settings: CertifySettings | None = None,
    seed: int,
    prefix: Prefix = None,
    suffix: Ids | None = None,
    overflow: str = "error",
    progress: Progress = no_progress,
    **changes: object,
) -> Certification:
    """Certify every item at every distance.

    >>> certification = certify_items(model, vocab, items, distances=(2,), seed=0)
    >>> certification.table()[0]["n"]
    8

    Args:
        items: the questions, each with its own key and none empty.
        settings: how to certify; by default within the distances 2, 4 and 6.
        seed: any integer; it and the item's key decide the draws.
        progress: called with (items done, all items).

    ``model``, ``vocab``, ``prefix``, ``suffix``, ``overflow`` and ``changes`` are those of
    :func:`certify`. With ``overflow="drop"``, every item with a tokenization to score that does not
    fit is left out.

    Raises RobustokError as :func:`certify` does.
    """
    prompts, seed = question_prompts(items), check_integer("seed", seed)
    settings = (settings or CertifySettings()).replaced(**changes)
    attacked_model = AttackedModel(model, vocab, prefix, suffix, overflow, _SCALE)
    certificates: list[Certificate] = []
    overflowed = 0
    for begin in range(0, len(prompts), GROUP):
        group = prompts[begin : begin + GROUP]
        certified, long = _certified(attacked_model, group, settings, seed)
        certificates += certified
        overflowed += long
        progress(min(begin + GROUP, len(prompts)), len(prompts))
    return Certification(tuple(certificates), settings, seed, overflowed)


def _certified(
    attacked_model: AttackedModel, prompts: Sequence[Prompt], settings: CertifySettings, seed: int
) -> tuple[list[Certificate], int]:
    """The certificates of questions that are scored together, and how many rows did not fit.

    A question that the overflow policy drops has none.
    """
    questions: list[tuple[AttackedText, Ragged, list[TokenizationSet]]] = []
    requests: list[Request] = []
    overflowed = 0
    for prompt in prompts:
        text = attacked_model.text(prompt)
        rows, sets = tokenizations_to_score(text, settings, seed)
        request = text.request(rows)
        overflowed += text.overflowed
        if request is not None:
            requests.append(request)
            questions.append((text, rows, sets))
    scores = [one.log_probs for one in score_many(attacked_model.model, requests)]
    answers = [int(log_probs[0].argmax()) for log_probs in scores]
    targets = [  # with the model's answer as the right one
        text.prompt._replace(fields=text.prompt.fields | {"label": answer})
        for (text, *_), answer in zip(questions, answers, strict=True)
    ]
    by_distance: list[Sequence[Attack | None]] = [
        _attacks(map(attacked_model.text, targets), within, seed)
        if settings.attack
        else [None] * len(questions)
        for within in settings.distances
    ]
    certificates: list[Certificate] = []
    attacks = zip(*by_distance, strict=True)
    for question, log_probs, own in zip(questions, scores, attacks, strict=True):
        certificates += _certificates(*question, log_probs, own, settings)
    return certificates, overflowed


class TokenizationSet(NamedTuple):
    """The tokenizations within a distance: how many, and the rows of those that are scored."""

    distance: int | None
    size: int
    members: np.ndarray


def _attacks(texts: Iterable[AttackedText], within: int | None, seed: int) -> list[Attack]:
    """The greedy attack on each question, kept within the distance by its number of steps."""
    # A step adds at most its own distance to the distance from the canonical tokenization.
    settings = AttackSettings()
    if within is not None:
        step = min(2, within)
        settings = AttackSettings(distances=(step,), steps=within // step)
    return run_in_groups([Trial(text, settings, seed) for text in texts], Scorer())


def _certificates(
    text: AttackedText,
    rows: Ragged,
    sets: Sequence[TokenizationSet],
    log_probs: np.ndarray,
    attacks: Sequence[Attack | None],
    settings: CertifySettings,
) -> Iterator[Certificate]:
    """The certificate of each distance, from the smallest one on.

    ``log_probs`` are those of the options after each of the ``rows``, the canonical one first,
    float64 [rows, options]; ``sets`` and ``attacks`` have one for each distance.
    """
    apart = partial(distance, text.vocab, text.canonical)
    answer, confidence = int(log_probs[0].argmax()), settings.confidence
    # What flips within a smaller distance is within a greater one too.
    witness: np.ndarray | None = None
    attacked: bool | None = None
    for chosen, attack in zip(sets, attacks, strict=True):
        in_set, exact = log_probs[chosen.members], chosen.size <= settings.limit
        other = chosen.members[in_set.argmax(axis=1) != answer].tolist()
        flips, scored = len(other), len(in_set)
        if witness is None and flips:
            witness = min((rows[i] for i in other), key=apart)
        if attack is not None:
            attacked = attacked or attack.success
            witness = attack.ids if witness is None and attack.success else witness
        yield Certificate(
            key=text.prompt.key,
            distance=chosen.distance,
            answer=answer,
            tokenizations=chosen.size,
            method="enumeration" if exact else "sampling",
            n_scored=scored,
            flips=flips,
            upper=flips / scored if exact else clopper_pearson_upper(flips, scored, confidence),
            confidence=1.0 if exact else confidence,
            margin=float(margins(in_set, answer).max()),
            attacked=attacked,
            attack_n_scored=0 if attack is None else attack.n_scored,
            witness=None if witness is None else tuple(witness.tolist()),
            witness_distance=None if witness is None else apart(witness),
        )


def tokenizations_to_score(
    question: AttackedText, settings: CertifySettings, seed: int
) -> tuple[Ragged, list[TokenizationSet]]:
    """The tokenizations to score, nearest levels first, and which belong to which distance."""
    canonical = question.canonical
    lattice = question.lattice
    farthest = lattice.farthest
    rows, level, sets = [canonical], 0, []
    for wanted in settings.distances:
        most = farthest if wanted is None else min(wanted, farthest)
        # All of them are counted without a polynomial of the text's length.
        counts = [] if most == farthest else lattice.counts(most=most)
        size = sum(counts) or lattice.count()
        if size <= settings.limit:
            while level < most:
                level += 1
                rows += list(lattice.neighbors(canonical, distance=level))
            members = np.arange(size)
        else:
            drawn = _draw_within(question, counts, settings.draws, seed)
            members = np.arange(len(rows), len(rows) + len(drawn))
            rows += drawn
        sets.append(TokenizationSet(wanted, size, members))
    return Ragged.from_rows(rows), sets


def _draw_within(
    question: AttackedText, counts: list[int], draws: int, seed: int
) -> list[np.ndarray]:
    """Uniform draws from the tokenizations of the counted distances (none: of all)."""
    if not counts:
        return list(question.draw_all("uniform", seed, draws, 0))
    total = sum(counts)
    rng = np.random.default_rng([check_seed(seed), question.draw_key, len(counts)])
    shares = rng.multinomial(draws, [count / total for count in counts])
    # An epoch for each level: from one, its draws and those of the next look alike.
    return [
        row
        for k, share in enumerate(shares.tolist())
        if share
        for row in question.draw_all(f"uniform-k(k={k})", seed, share, k)
    ]
