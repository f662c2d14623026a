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

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from robustok.display import Progress
from robustok.errors import RobustokError
from robustok.evaluation.adversarial.certificate_result import Certificate, Certification
from robustok.evaluation.adversarial.search import Attack, Problem, Settings, climb, run
from robustok.evaluation.intervals import clopper_pearson_upper
from robustok.evaluation.questions import Ids, check_questions, encode_options, item_key
from robustok.evaluation.questions import margins as margins_of
from robustok.evaluation.resume import RowFile
from robustok.lattice import Lattice, distance
from robustok.models.fingerprint import model_fingerprint
from robustok.ragged import Ragged
from robustok.scoring import Request, score_many
from robustok.scoring.forward import PrefixCache

if TYPE_CHECKING:
    from robustok.tasks.item import Item
    from robustok.vocabulary import Vocabulary

_ROWS = 1024  # tokenizations scored together; small questions share a call
_POOL = 32  # questions attacked side by side


@dataclass(frozen=True)
class Plan:
    """How to certify: the distances, and the most tokenizations of a question to score one by one.

    ``draws`` uniform draws where there are more than ``limit``; ``attack`` runs the search too.
    """

    distances: tuple[int | None, ...]
    limit: int
    draws: int
    confidence: float
    seed: int
    attack: bool

    def __post_init__(self) -> None:
        if not self.distances or len(set(self.distances)) < len(self.distances):
            raise RobustokError("give each distance once, and at least one, as in 2, 4")
        if any(d is not None and d < 1 for d in self.distances):
            raise RobustokError("a distance to certify is a whole number from 1 on")
        if self.draws < 1 or self.limit < 1:
            raise RobustokError("draws and limit must be at least 1")
        if not 0 < self.confidence < 1:
            raise RobustokError(f"confidence {self.confidence} is not between 0 and 1")
        known = sorted(d for d in self.distances if d is not None)
        every = (None,) if None in self.distances else ()
        object.__setattr__(self, "distances", (*known, *every))


def certify(
    model: Any,
    vocab: Vocabulary,
    text: str,
    options: Sequence[str | Ids],
    *,
    distance: int | None,
    limit: int = 2000,
    draws: int = 1000,
    confidence: float = 0.95,
    attack: bool = True,
    seed: int,
    prefix: Ids | None = None,
    suffix: Ids | None = None,
    max_batch_tokens: int | None = None,
    progress: Progress | None = None,
) -> Certificate:
    """Certify one question's answer under the tokenizations within a distance, or under all.

    >>> item = items[0]
    >>> done = certify(model, vocab, item.question, item.choices, distance=2, seed=0)
    >>> done.method, done.tokenizations, done.flips
    ('enumeration', 3, 0)

    Scored as in :func:`attack`: z = p(option | prefix, tokenization, suffix). At most ``limit``
    tokenizations are enumerated; beyond it ``draws`` uniform ones bound the share that changes
    the answer. The attack is greedy over distance 2, in as many steps as stay within the set, and
    aims at any other answer, whether the canonical one is right or wrong. ``progress`` is called
    with (tokenizations scored, tokenizations to score), the attack's apart.

    Raises RobustokError for fewer than two options and for impossible settings.
    """
    if not text:
        raise RobustokError("the text to certify is empty: give a question")
    if len(options) < 2:
        raise RobustokError("an answer needs an alternative: give at least two options")
    plan = Plan((distance,), limit, draws, confidence, seed, attack)
    encoded = encode_options(vocab, options)
    problem = Problem(text, text, encoded, 0, prefix, suffix, vocab, item_key(text))
    prepared = [_tokenizations(problem, plan)]
    return _certify_block(model, prepared, plan, max_batch_tokens, progress)[0][0]


def certify_items(
    model: Any,
    vocab: Vocabulary,
    items: Sequence[Item],
    *,
    distances: Sequence[int | None] = (2, 4, 6),
    limit: int = 2000,
    draws: int = 1000,
    confidence: float = 0.95,
    attack: bool = True,
    seed: int,
    prefix: Ids | None = None,
    suffix: Ids | None = None,
    max_batch_tokens: int | None = None,
    resume_file: str | Path | None = None,
    progress: Progress | None = None,
) -> Certification:
    """Certify every item at every distance: how much of what a search leaves is really safe.

    >>> found = certify_items(model, vocab, items, distances=(2,), seed=0)
    >>> found.gap()[0]["n"]
    8

    The settings are those of :func:`certify`. With ``resume_file``, finished items are kept there
    and not done again. ``progress`` is called with (items done, items).
    """
    began = time.perf_counter()
    check_questions(items)
    plan = Plan(tuple(distances), limit, draws, confidence, seed, attack)
    done: dict[str, list[Certificate]] = {}
    with ExitStack() as stack:
        file = None
        if resume_file is not None:
            config = _config(model, vocab, plan, prefix, suffix)
            file = stack.enter_context(RowFile(resume_file, config, items))
            for key, row in file.rows.items():
                done[key] = [Certificate.from_json(c) for c in row["certificates"]]
        waiting = [item for item in items if item.key not in done]
        for block in _blocks(waiting, vocab, prefix, suffix, plan):
            for found in _certify_block(model, block, plan, max_batch_tokens):
                key = found[0].key
                done[key] = found
                if file is not None:
                    file.add_row({"key": key, "certificates": [c.to_json() for c in found]})
            if progress is not None:
                progress(sum(item.key in done for item in items), len(items))
    return Certification(
        certificates=tuple(c for item in items for c in done[item.key]),
        distances=plan.distances,
        n=len(items),
        limit=limit,
        draws=draws,
        confidence=confidence,
        seed=seed,
        seconds=time.perf_counter() - began,
    )


def _config(
    model: Any, vocab: Vocabulary, plan: Plan, prefix: Ids | None, suffix: Ids | None
) -> dict[str, Any]:
    return asdict(plan) | {
        "model": model_fingerprint(model),
        "vocabulary": vocab.fingerprint,
        "prefix": [] if prefix is None else [int(i) for i in prefix],
        "suffix": [] if suffix is None else [int(i) for i in suffix],
    }


class _Set(NamedTuple):
    """The tokenizations scored for one distance: ``members`` are their rows."""

    distance: int | None
    size: int
    exact: bool
    members: np.ndarray


class _Prepared(NamedTuple):
    """A problem and every tokenization of it to score, the canonical one first."""

    problem: Problem
    rows: Ragged
    sets: list[_Set]


def _blocks(
    items: Iterable[Item],
    vocab: Vocabulary,
    prefix: Ids | None,
    suffix: Ids | None,
    plan: Plan,
) -> Iterator[list[_Prepared]]:
    """The items in blocks of about as many tokenizations as are scored together."""
    block: list[_Prepared] = []
    for item in items:
        options, number = encode_options(vocab, item.choices), item_key(item.key)
        problem = Problem(item.key, item.question, options, 0, prefix, suffix, vocab, number)
        block.append(_tokenizations(problem, plan))
        if sum(len(p.rows) for p in block) >= _ROWS:
            yield block
            block = []
    if block:
        yield block


def _certify_block(
    model: Any,
    block: list[_Prepared],
    plan: Plan,
    max_batch_tokens: int | None,
    progress: Progress | None = None,
) -> list[list[Certificate]]:
    """The certificates of some problems, one a distance each."""
    scored = _score(model, block, max_batch_tokens, progress)
    # Row 0 is the canonical tokenization; its answer is what the others are held to.
    block = [
        p._replace(problem=replace(p.problem, label=int(s[0].argmax())))
        for p, s in zip(block, scored, strict=True)
    ]
    problems = [p.problem for p in block]
    attacks = {d: _attacks(model, problems, d, plan, max_batch_tokens) for d in plan.distances}
    results = []
    for prepared, log_probs in zip(block, scored, strict=True):
        found: list[Certificate] = []
        for chosen in prepared.sets:
            attack = attacks[chosen.distance].get(prepared.problem.key)
            found.append(_certificate(prepared, chosen, log_probs, attack, plan, found))
        results.append(found)
    return results


def _score(
    model: Any, block: list[_Prepared], max_batch_tokens: int | None, progress: Progress | None
) -> list[np.ndarray]:
    """log p of the options after every tokenization: float64 [rows, options] for each problem."""
    pieces = [(i, at) for i, p in enumerate(block) for at in range(0, len(p.rows), _ROWS)]
    total = sum(len(p.rows) for p in block)
    found: list[list[np.ndarray]] = [[] for _ in block]
    prefix_cache: PrefixCache = {}
    requests: list[tuple[int, Request]] = []
    waiting = done = 0
    for last, (i, at) in enumerate(pieces, 1):
        _, rows, _ = block[i]
        piece = [rows[j] for j in range(at, min(at + _ROWS, len(rows)))]
        requests.append((i, block[i].problem.request(Ragged.from_rows(piece))))
        waiting += len(piece)
        if waiting < _ROWS and last < len(pieces):
            continue
        scored = score_many(
            model,
            [r for _, r in requests],
            max_batch_tokens=max_batch_tokens,
            prefix_cache=prefix_cache,
        )
        for (owner, _), scores in zip(requests, scored, strict=True):
            found[owner].append(scores.log_probs)
        done += waiting
        waiting, requests = 0, []
        if progress is not None:
            progress(done, total)
    return [np.concatenate(parts) for parts in found]


def _tokenizations(problem: Problem, plan: Plan) -> _Prepared:
    """The tokenizations to score, nearest levels first, and which belong to which distance."""
    canonical = np.asarray(problem.vocab.encode(problem.text), np.int32)
    lattice = Lattice(problem.vocab, canonical)
    farthest = lattice.farthest
    rows: list[np.ndarray] = []
    level, sets = -1, []
    for wanted in plan.distances:
        most = farthest if wanted is None else min(wanted, farthest)
        # All of them are counted without a polynomial of the text's length.
        counts = [] if most == farthest else lattice.counts(most=most)
        size = sum(counts) or lattice.count()
        exact = size <= plan.limit
        if exact:
            while level < most:
                level += 1
                rows += list(lattice.neighbors(canonical, distance=level))
            members = np.arange(size)
        else:
            rows = rows or [canonical]
            level = max(level, 0)
            drawn = _draw_within(problem, canonical, counts, plan)
            members = np.arange(len(rows), len(rows) + len(drawn))
            rows += drawn
        sets.append(_Set(wanted, size, exact, members))
    return _Prepared(problem, Ragged.from_rows(rows), sets)


def _draw_within(
    problem: Problem, canonical: np.ndarray, counts: list[int], plan: Plan
) -> list[np.ndarray]:
    """Uniform draws from the tokenizations of the counted distances (none: of all)."""
    from robustok.samplers import UniformK, sampler

    keys, text = np.array([problem.number], np.int64), Ragged.from_rows([canonical])
    if not counts:
        uniform = sampler("uniform", problem.vocab)
        return list(uniform.sample_batch(text, seed=plan.seed, draws=plan.draws, keys=keys))
    total = sum(counts)
    rng = np.random.default_rng([plan.seed, problem.number, len(counts)])
    shares = rng.multinomial(plan.draws, [count / total for count in counts])
    rows: list[np.ndarray] = []
    for k, share in enumerate(shares.tolist()):
        if share:
            drawn = UniformK(problem.vocab, k=k).sample_batch(
                text, seed=plan.seed, draws=share, keys=keys, epoch=len(counts)
            )
            rows += list(drawn)
    return rows


def _attacks(
    model: Any,
    problems: Iterable[Problem],
    within: int | None,
    plan: Plan,
    max_batch_tokens: int | None,
) -> dict[str, Attack]:
    """The greedy attack on each problem, kept within the distance by the number of its steps."""
    if not plan.attack:
        return {}
    # A step adds at most its own distance to the distance from the canonical tokenization.
    settings = Settings()
    if within is not None:
        step = min(2, within)
        settings = Settings(distances=(step,), steps=within // step)
    found: dict[str, Attack] = {}

    def finished(attack: Attack, computed: int, naive: int, mode: str) -> None:
        found[attack.key] = attack

    search = partial(climb, settings=settings, seed=plan.seed)
    run(model, problems, search, max_batch_tokens=max_batch_tokens, pool=_POOL, finished=finished)
    return found


def _certificate(
    prepared: _Prepared,
    chosen: _Set,
    log_probs: np.ndarray,
    attack: Attack | None,
    plan: Plan,
    nearer: Sequence[Certificate],
) -> Certificate:
    problem, rows, _ = prepared
    mine = log_probs[chosen.members]
    other = chosen.members[mine.argmax(axis=1) != problem.label]
    flips, scored = len(other), len(mine)
    exact = chosen.exact
    # What is known to flip within a smaller distance is within this one too.
    witness = next((c.witness for c in nearer if c.witness is not None), None)
    if witness is None and flips:
        witness = tuple(rows[min(other, key=lambda i: _apart(problem, rows[i]))].tolist())
    attacked = None if attack is None else attack.success
    attacked = True if any(c.attacked for c in nearer) else attacked
    if witness is None and attack is not None and attack.success:
        witness = tuple(attack.ids.tolist())
    return Certificate(
        key=problem.key,
        distance=chosen.distance,
        answer=problem.label,
        tokenizations=chosen.size,
        method="enumeration" if exact else "sampling",
        n_scored=scored,
        flips=flips,
        upper=flips / scored if exact else clopper_pearson_upper(flips, scored, plan.confidence),
        confidence=1.0 if exact else plan.confidence,
        margin=float(margins_of(mine, problem.label).max()),
        attacked=attacked,
        attack_n_scored=0 if attack is None else attack.n_scored,
        witness=witness,
        witness_distance=None if witness is None else _apart(problem, np.array(witness)),
    )


def _apart(problem: Problem, ids: np.ndarray) -> int:
    return distance(problem.vocab, problem.vocab.encode(problem.text), ids)
