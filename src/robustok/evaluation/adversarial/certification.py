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
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from robustok.attack_settings import AttackSettings
from robustok.display import Progress
from robustok.errors import RobustokError
from robustok.evaluation.adversarial.certificate_result import Certificate, Certification
from robustok.evaluation.adversarial.certified_sets import (
    Plan,
    TokenizationSet,
    tokenizations_to_score,
)
from robustok.evaluation.adversarial.problem import (
    Problem,
    Surroundings,
    make_problem,
    problem_of,
)
from robustok.evaluation.adversarial.search import Attack, climb, run
from robustok.evaluation.intervals import clopper_pearson_upper
from robustok.evaluation.questions import Ids, check_questions
from robustok.evaluation.questions import margins as margins_of
from robustok.evaluation.resume import RowFile
from robustok.lattice import distance
from robustok.models.fingerprint import model_fingerprint
from robustok.ragged import Ragged
from robustok.scoring import Request, score_many
from robustok.scoring.forward import PrefixCache

if TYPE_CHECKING:
    from robustok.tasks.item import Item
    from robustok.vocabulary import Vocabulary

_ROWS = 1024  # tokenizations scored together; small questions share a call
_POOL = 32  # questions attacked side by side


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
    overflow: str = "error",
    max_batch_tokens: int | None = None,
    progress: Progress | None = None,
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
        limit: greatest number of tokenizations that are enumerated, at least 1. A larger set is
            sampled.
        draws: uniform draws from a larger set, at least 1. More draws give a tighter bound on the
            share that changes the answer: about 3 / draws if none of them does, at 95%.
        confidence: probability that the bound holds, between 0 and 1.
        attack: whether to run the greedy attack too. It moves by distance 2, in as many steps as
            stay within the set, and aims at any other answer, whether the canonical one is right or
            wrong.
        seed: any integer; it decides the draws.
        prefix: ids before the text that stay as they are, such as a chat template; by default none.
        suffix: ids after the text that stay as they are; by default none.
        overflow: what to do with a tokenization that does not fit the model: ``"error"`` (default);
            ``"left"``: the start of the prompt is cut off; ``"canonical"``: the canonical
            tokenization is scored in its place, as a model behind that policy would; ``"drop"``:
            refuses the text.
        max_batch_tokens: greatest number of tokens of one forward pass; by default 1,024 on a CPU
            and 16,384 elsewhere. Out of memory, it is halved and the pass repeated.
        progress: called with (tokenizations scored, tokenizations to score), those of the attack
            not included.

    Scored as in :func:`attack`: z = p(option | prefix, tokenization, suffix).

    Raises RobustokError for fewer than two options, for settings out of range, and by ``overflow``.
    Source: Clopper and Pearson (1934) for the bound.
    """
    plan = Plan((distance,), limit, draws, confidence, seed, attack)
    surroundings = Surroundings(prefix, suffix, overflow)
    problem = make_problem(model, vocab, text, options, 0, surroundings)
    prepared = _prepare(problem, plan)
    if prepared is None:
        raise RobustokError(
            "the text does not fit the model's max_length: choose overflow left or canonical"
        )
    return _certify_block(model, [prepared], plan, max_batch_tokens, progress)[0][0]


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
    overflow: str = "error",
    max_batch_tokens: int | None = None,
    resume_file: str | Path | None = None,
    progress: Progress | None = None,
) -> Certification:
    """Certify every item at every distance.

    >>> certification = certify_items(model, vocab, items, distances=(2,), seed=0)
    >>> certification.gap()[0]["n"]
    8

    Args:
        model: any causal language model of transformers.
        vocab: the model's vocabulary.
        items: the questions, each with its own key and none empty.
        distances: greatest distances from the canonical tokenization, each at least 1 and given
            once; None for all tokenizations.
        limit: greatest number of tokenizations that are enumerated, at least 1.
        draws: uniform draws from a larger set, at least 1.
        confidence: probability that each bound holds, between 0 and 1; not that all hold jointly.
        attack: whether to run the greedy attack too, as in :func:`certify`.
        seed: any integer; it and the item's key decide the draws.
        prefix: ids before every question that stay as they are; by default none.
        suffix: ids after every question that stay as they are; by default none.
        overflow: what to do with a tokenization that does not fit the model, as in :func:`certify`;
            ``"drop"`` leaves out every item with a tokenization to score that does not fit.
        max_batch_tokens: greatest number of tokens of one forward pass, as in :func:`certify`.
        resume_file: file that keeps each finished item. Another call with the same arguments
            certifies only the others; by default nothing is kept.
        progress: called with (items done, all items).

    Raises RobustokError as :func:`certify` does, and where no item fits the model.
    """
    began = time.perf_counter()
    check_questions(items)
    plan = Plan(tuple(distances), limit, draws, confidence, seed, attack)
    surroundings = Surroundings(prefix, suffix, overflow)
    done: dict[str, dict[str, Any]] = {}  # rows of a resume file, by the key of their item
    with ExitStack() as stack:
        file = None
        if resume_file is not None:
            config = asdict(plan) | surroundings.as_config() | {
                "model": model_fingerprint(model), "vocabulary": vocab.fingerprint,
            }  # fmt: skip
            file = stack.enter_context(RowFile(resume_file, config, items))
            done = dict(file.rows)
        finished = set(done)
        waiting = any(item.key not in finished for item in items)
        problems = [problem_of(model, vocab, item, surroundings) for item in items if waiting]
        for rows in _certified_rows(model, problems, plan, max_batch_tokens, finished):
            if not rows:
                continue
            for row in rows:
                done[row["key"]] = row
                if file is not None:
                    file.add_row(row)
            if progress is not None:
                progress(sum(item.key in done for item in items), len(items))
    by_item = [[Certificate.from_json(c) for c in done[i.key]["certificates"]] for i in items]
    if not any(by_item):
        raise RobustokError(
            "no item fits the model's max_length: choose overflow left or canonical"
        )
    return Certification(
        certificates=tuple(c for certificates in by_item for c in certificates),
        distances=plan.distances,
        n=sum(map(bool, by_item)),
        limit=limit,
        draws=draws,
        confidence=confidence,
        seed=seed,
        seconds=time.perf_counter() - began,
        overflowed=sum(done[item.key]["overflowed"] for item in items),
    )


class _Prepared(NamedTuple):
    """A problem and every tokenization of it to score, the canonical one first.

    ``request`` scores them: row by row ``rows``, or what the overflow policy puts in their place.
    """

    problem: Problem
    rows: Ragged
    sets: list[TokenizationSet]
    request: Request


def _prepare(problem: Problem, plan: Plan) -> _Prepared | None:
    """The tokenizations to score, or None where the overflow policy drops the item."""
    rows, sets = tokenizations_to_score(problem, plan)
    request = problem.request(rows)
    return None if request is None else _Prepared(problem, rows, sets, request)


def _certified_rows(
    model: Any,
    problems: Iterable[Problem],
    plan: Plan,
    max_batch_tokens: int | None,
    finished: Container[str],
) -> Iterator[list[dict[str, Any]]]:
    """Certificates as rows of a resume file, in blocks scored together; none for a dropped item.

    Only rows of items that are not ``finished``. Such items are still part of their block, since
    how a score rounds depends on the whole batch; a block of finished items alone is not scored.
    """
    block: list[_Prepared] = []
    dropped: list[dict[str, Any]] = []

    def rows_of_block() -> list[dict[str, Any]]:
        waiting = any(prepared.problem.key not in finished for prepared in block)
        certified = _certify_block(model, block, plan, max_batch_tokens) if waiting else []
        rows = [
            _row(prepared.problem, certificates)
            for prepared, certificates in zip(block if waiting else [], certified, strict=True)
        ]
        return [row for row in dropped + rows if row["key"] not in finished]

    for problem in problems:
        prepared = _prepare(problem, plan)
        if prepared is None:
            dropped.append(_row(problem, []))
            continue
        block.append(prepared)
        if sum(len(p.rows) for p in block) >= _ROWS:
            yield rows_of_block()
            block, dropped = [], []
    if block or dropped:
        yield rows_of_block()


def _row(problem: Problem, certificates: Sequence[Certificate]) -> dict[str, Any]:
    return {
        "key": problem.key,
        "certificates": [certificate.to_json() for certificate in certificates],
        "overflowed": problem.window.overflowed,
    }


def _certify_block(
    model: Any,
    block: list[_Prepared],
    plan: Plan,
    max_batch_tokens: int | None,
    progress: Progress | None = None,
) -> list[list[Certificate]]:
    """The certificates of some problems, one for each distance."""
    scored = _score(model, block, max_batch_tokens, progress)
    # Row 0 is the canonical tokenization; the other answers are compared with its answer.
    block = [
        p._replace(problem=replace(p.problem, label=int(s[0].argmax())))
        for p, s in zip(block, scored, strict=True)
    ]
    problems = [p.problem for p in block]
    attacks = {d: _attacks(model, problems, d, plan, max_batch_tokens) for d in plan.distances}
    results = []
    for prepared, log_probs in zip(block, scored, strict=True):
        certificates: list[Certificate] = []
        for chosen in prepared.sets:
            attack = attacks[chosen.distance].get(prepared.problem.key)
            certificates.append(
                _certificate(prepared, chosen, log_probs, attack, plan, certificates)
            )
        results.append(certificates)
    return results


def _score(
    model: Any, block: list[_Prepared], max_batch_tokens: int | None, progress: Progress | None
) -> list[np.ndarray]:
    """log p of the options after every tokenization: float64 [rows, options] for each problem."""
    chunks = [(i, at) for i, p in enumerate(block) for at in range(0, len(p.rows), _ROWS)]
    total = sum(len(p.rows) for p in block)
    log_probs: list[list[np.ndarray]] = [[] for _ in block]
    prefix_cache: PrefixCache = {}
    requests: list[tuple[int, Request]] = []
    waiting = done = 0
    for last, (i, at) in enumerate(chunks, 1):
        request = block[i].request
        rows = list(request.questions)[at : at + _ROWS]
        requests.append((i, replace(request, questions=Ragged.from_rows(rows))))
        waiting += len(rows)
        if waiting < _ROWS and last < len(chunks):
            continue
        scored = score_many(
            model, [r for _, r in requests],
            max_batch_tokens=max_batch_tokens, prefix_cache=prefix_cache,
        )  # fmt: skip
        for (owner, _), scores in zip(requests, scored, strict=True):
            log_probs[owner].append(scores.log_probs)
        done += waiting
        waiting, requests = 0, []
        if progress is not None:
            progress(done, total)
    return [np.concatenate(parts) for parts in log_probs]


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
    settings = AttackSettings()
    if within is not None:
        step = min(2, within)
        settings = AttackSettings(distances=(step,), steps=within // step)
    attacks: dict[str, Attack] = {}

    def finished(attack: Attack, computed: int, naive: int, mode: str) -> None:
        attacks[attack.key] = attack

    search = partial(climb, settings=settings, seed=plan.seed)
    run(model, problems, search, max_batch_tokens=max_batch_tokens, pool=_POOL, finished=finished)
    return attacks


def _certificate(
    prepared: _Prepared,
    chosen: TokenizationSet,
    log_probs: np.ndarray,
    attack: Attack | None,
    plan: Plan,
    nearer: Sequence[Certificate],
) -> Certificate:
    problem, rows = prepared.problem, prepared.rows
    in_set = log_probs[chosen.members]
    other = chosen.members[in_set.argmax(axis=1) != problem.label]
    flips, scored = len(other), len(in_set)
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
        margin=float(margins_of(in_set, problem.label).max()),
        attacked=attacked,
        attack_n_scored=0 if attack is None else attack.n_scored,
        witness=witness,
        witness_distance=None if witness is None else _apart(problem, np.array(witness)),
    )


def _apart(problem: Problem, ids: np.ndarray) -> int:
    return distance(problem.vocab, problem.canonical, ids)
