"""Searches for the tokenization of a text with the highest score, many texts in one batch.

A search is a generator: it yields candidate tokenizations and receives the score of each. It knows
neither the objective nor the other texts. :func:`run_trials` advances many searches at once and
scores all their candidates in one batch. A :class:`Trial` has the scores of one search, each
tokenization once, and makes the record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, product
from typing import Any, NamedTuple

import numpy as np

from robustok.attack.objectives import CausalObjective, Objective
from robustok.attack.records import Attack, Prompt, Step
from robustok.attack.settings import AttackSettings
from robustok.checks import check_seed, shown
from robustok.errors import RobustokError
from robustok.evaluation.questions import append, item_key, plain_ids
from robustok.lattice import Lattice
from robustok.ragged import Ragged
from robustok.runtime.environment import computed_once
from robustok.runtime.registry import Registry
from robustok.samplers import sampler
from robustok.scoring import Request, score_many
from robustok.scoring.forward import PrefixCache
from robustok.tokenizer.chat import after_prefix, token_starts
from robustok.tokenizer.vocabulary import Vocabulary

Rows = Sequence[np.ndarray]
Search = Generator[Iterable[np.ndarray], np.ndarray, None]

_CHUNK = 256  # uniform draws scored between two looks at the result of a random search
_MOST_NEIGHBORS = 1_000_000  # of one tokenization with second ids
_IDLE = 20  # restarts in a row without a new tokenization that end the search


@dataclass(eq=False)
class AttackedText:
    """A text under attack: its tokenizations and the objective."""

    vocab: Vocabulary
    prompt: Prompt
    objective: Objective
    key: str | None = None  # what random draws depend on beside the seed, by default the text
    second_ids: bool = False  # whether neighbors also have second ids
    filtered: int = 0  # candidates left out because they do not fit the model

    def __post_init__(self) -> None:
        if not self.prompt.text:
            raise RobustokError("the text is empty: give a question or a prompt")
        self.draw_key = item_key(self.prompt.text if self.key is None else self.key)

    @computed_once
    def _prefix_and_ids(self) -> tuple[np.ndarray, np.ndarray]:
        prefix = getattr(self.objective, "prefix", None)
        return after_prefix(self.vocab, prefix, self.prompt.text)

    @property
    def prefix(self) -> np.ndarray:
        """The objective's prefix ids before the text, without a token that the text begins in."""
        return self._prefix_and_ids[0]

    @property
    def canonical(self) -> np.ndarray:
        """The canonical ids of the text after the objective's prefix, int32."""
        return self._prefix_and_ids[1]

    @computed_once
    def lattice(self) -> Lattice:
        """All tokenizations of the text."""
        return Lattice(self.vocab, self.canonical)

    @computed_once
    def max_length(self) -> int | None:
        """Greatest number of tokens that the model has positions for; None for no limit."""
        limit = self.objective.max_length  # of prefix and text
        return None if limit is None else limit - len(self.prefix)

    @property
    def overflowed(self) -> int:
        """Tokenizations that did not fit the model."""
        window = getattr(self.objective, "window", None)
        return self.filtered + (0 if window is None else window.overflowed)

    def fitting(self, rows: Iterable[np.ndarray]) -> list[np.ndarray]:
        """The rows that the model has positions for; the others are counted."""
        rows, limit = list(rows), self.max_length
        fitting = [row for row in rows if limit is None or len(row) <= limit]
        self.filtered += len(rows) - len(fitting)
        return fitting

    def neighbors(self, ids: np.ndarray, distance: int) -> list[np.ndarray]:
        """The tokenizations at a distance from ``ids`` that fit the model."""
        return self.fitting(self.all_neighbors(ids, distance))

    def all_neighbors(self, ids: np.ndarray, distance: int) -> Iterable[np.ndarray]:
        """The tokenizations at a distance from ``ids``."""
        if self.second_ids:
            return neighbors_with_second_ids(self.lattice, ids, distance)
        return self.lattice.neighbors(ids, distance=distance)

    def draw(self, spec: str, seed: int, draws: int, epoch: int) -> list[np.ndarray]:
        """Tokenizations drawn by the scheme ``spec``, those that fit the model."""
        return self.fitting(self.draw_all(spec, seed, draws, epoch))

    def draw_all(self, spec: str, seed: int, draws: int, epoch: int) -> Ragged:
        """As :meth:`draw`, with tokenizations that do not fit; a start is drawn in epoch 0."""
        keys = np.array([self.draw_key], np.int64)
        return sampler(spec, self.vocab).sample_batch(
            Ragged.from_rows([self.canonical]), seed=seed, draws=draws, keys=keys, epoch=epoch
        )

    def start(self, spec: str, seed: int) -> np.ndarray:
        """The tokenization at which a search begins, "canonical" or drawn by the scheme ``spec``.

        A drawn start that is too long is replaced by the canonical ids.
        """
        length, limit = len(self.canonical), self.max_length
        if limit is not None and length > limit:
            raise RobustokError(
                f"the prompt has {length} tokens, and the model's longest input leaves {limit} to "
                "it: shorten it"
            )
        if spec == "canonical":
            return self.canonical
        drawn = self.draw(spec, seed, 1, 0)
        return drawn[0] if drawn else self.canonical

    def request(self, rows: Ragged) -> Request | None:
        """The request for these tokenizations; None where the overflow policy drops the text."""
        objective = self.objective
        assert isinstance(objective, CausalObjective)
        name = f"'{self.prompt.key}'"
        request = replace(objective.request(rows), prefix=self.prefix, name=name)
        if objective.window is None:
            return request
        (canonical,) = append(Ragged.from_rows([self.canonical]), objective.suffix)
        return objective.window.fit(request, self.prompt.key, canonical)

    def is_dropped(self, spec: str, seed: int) -> bool:
        """Whether the overflow policy drops the text: its start or canonical tokens do not fit.

        The window counts the tokenizations of a dropped text.
        """
        assert isinstance(self.objective, CausalObjective) and self.objective.window is not None
        start = [] if spec == "canonical" else self.draw_all(spec, seed, 1, 0)
        if self.request(Ragged.from_rows([*start, self.canonical])) is None:
            return True
        self.objective.window.overflowed = 0  # scoring counts the rows
        return False


def neighbors_with_second_ids(
    lattice: Lattice, ids: np.ndarray, distance: int
) -> Iterator[np.ndarray]:
    """The tokenizations at a distance from ``ids`` over V and its second ids, int32 [tokens] each.

    Each new token of a neighbor at distance e over V may be any id of its bytes, and distance - e
    of the tokens shared with ``ids`` are exchanged for another id of their bytes. Second ids of the
    canonical tokenization stay.
    """
    vocab = lattice.vocab
    fixed = lattice.reference[~vocab.ordinary[lattice.reference]].tolist()
    same_bytes = vocab.derived("ids of the same bytes", lambda: _same_bytes(vocab))
    choices = {i: alternatives for i, alternatives in same_bytes.items() if i not in fixed}
    id_at = dict(zip(_token_spans(vocab, ids), ids.tolist(), strict=True))
    plain = np.array([choices.get(i, [i])[0] for i in ids.tolist()], np.int32)
    candidates = (
        exchanged
        for n_new in range(distance + 1)
        for row in lattice.neighbors(plain, distance=n_new)
        for exchanged in _exchange(vocab, row, id_at, choices, distance - n_new)
    )
    for count, row in enumerate(candidates):
        if count == _MOST_NEIGHBORS:
            raise RobustokError(
                f"distance {distance} with second ids has over a million neighbors: give a "
                "smaller one, or a shorter text"
            )
        yield np.array(row, np.int32)


def _exchange(
    vocab: Vocabulary,
    row: np.ndarray,
    id_at: dict[tuple[int, int], int],
    choices: dict[int, list[int]],
    count: int,
) -> Iterator[tuple[int, ...]]:
    """The ids that differ from ``id_at`` in exactly ``count`` of the spans that both have."""
    tokens, spans = row.tolist(), _token_spans(vocab, row)
    shared = [index for index, span in enumerate(spans) if span in id_at]
    options = [choices.get(i, [i]) for i in tokens]  # for a new token, all ids of its bytes
    for index in shared:
        options[index] = [id_at[spans[index]]]
    for exchanged in combinations([index for index in shared if tokens[index] in choices], count):
        variant = options.copy()
        for index in exchanged:
            variant[index] = [i for i in choices[tokens[index]] if i != id_at[spans[index]]]
        yield from product(*variant)


def _token_spans(vocab: Vocabulary, ids: np.ndarray) -> list[tuple[int, int]]:
    return list(pairwise(token_starts(vocab, ids).tolist()))


def _same_bytes(vocab: Vocabulary) -> dict[int, list[int]]:
    """By id, all ids of its bytes where there are several; the id of V is first."""
    by_bytes: dict[bytes, list[int]] = {}
    for i in [*np.flatnonzero(vocab.ordinary).tolist(), *np.flatnonzero(vocab.is_second).tolist()]:
        by_bytes.setdefault(vocab.tokens[i], []).append(i)
    groups = [ids for ids in by_bytes.values() if len(ids) > 1 and vocab.ordinary[ids[0]]]
    return {i: ids for ids in groups for i in ids}


class Scored(NamedTuple):
    """Scores of some candidates, [candidates] each."""

    scores: np.ndarray
    succeeded: np.ndarray
    log_probs: np.ndarray  # [candidates, continuations of the objective]


class Trial:
    """One attack on one text: the scores so far, and the improvements.

    A search reads ``text``, ``settings``, ``seed``, ``n_scored``, ``left``, ``succeeded`` and
    ``stopped``. ``scores`` has the score of each tokenization by the bytes of its int32 ids,
    ``steps`` each tokenization that scored higher than all before it or was the first success at
    that score, ``reached_at`` the number scored at the first success, ``rounds`` the batches.
    """

    def __init__(self, text: AttackedText, settings: AttackSettings, seed: int) -> None:
        self.text, self.settings, self.seed = text, settings, seed
        self.scores: dict[bytes, float] = {}
        self.steps: list[Step] = []
        self.reached_at: int | None = None
        self.rounds = 0

    @property
    def n_scored(self) -> int:
        """Tokenizations that the search scored, each counted once."""
        return len(self.scores)

    @property
    def left(self) -> int | None:
        """Tokenizations that may still be scored; None without a limit."""
        limit = self.settings.max_scored
        return None if limit is None else limit - self.n_scored

    @property
    def succeeded(self) -> bool:
        """Whether a tokenization succeeded."""
        return self.reached_at is not None

    @property
    def stopped(self) -> bool:
        """Whether the settings end the search here."""
        return self.settings.stop_when_wrong and self.succeeded

    def drive(self) -> Generator[list[np.ndarray], Scored, Attack]:
        """Run the search; yields the tokenizations that it asks for and that have no score yet."""
        search = SEARCHES[self.settings.search](self)
        answer: Any = None
        while True:
            try:
                rows = list(search.send(answer))
            except StopIteration:
                break
            distinct = {row.tobytes(): row for row in rows}
            new = [row for row_bytes, row in distinct.items() if row_bytes not in self.scores]
            new = new if self.left is None else new[: self.left]
            if new:
                self._add(new, (yield new))
            answer = np.array([self.scores.get(row.tobytes(), -math.inf) for row in rows])
        canonical = self.scores.get(self.text.canonical.tobytes())
        if canonical is None:  # the search did not reach it, so it does not count
            canonical = float((yield [self.text.canonical]).scores[0])
        return self._record(canonical)

    def _add(self, rows: Rows, scored: Scored) -> None:
        """Record the scores of a batch of new rows."""
        for row, score, success, log_probs in zip(
            rows, scored.scores.tolist(), scored.succeeded.tolist(), scored.log_probs, strict=True
        ):
            self.scores[row.tobytes()] = score
            is_first = success and self.reached_at is None
            if is_first:
                self.reached_at = self.n_scored
            highest = self.steps[-1].score if self.steps else -math.inf
            # Margins of probabilities that underflow are all 0, and some may be successes.
            if not self.steps or score > highest or (is_first and score == highest):
                ids = np.array(row, np.int32)  # a copy, since a row holds its whole neighborhood
                best = tuple(log_probs.tolist())
                self.steps.append(Step(ids, score, self.n_scored, self.rounds, best))
        self.rounds += 1

    @property
    def is_proved(self) -> bool:
        """Whether the canonical tokenization and all at the distances were scored, none broke."""
        text, scores, distances = self.text, self.scores, self.settings.distances
        if text.objective.threshold is None or self.succeeded:
            return False
        # A lower bound of their number, without listing them.
        count = sum(math.exp(min(text.lattice.log_count(distance=d), 99.0)) for d in distances)
        return (
            text.canonical.tobytes() in scores
            and count < self.n_scored + 0.5
            and all(
                row.tobytes() in scores
                for d in distances
                for row in text.all_neighbors(text.canonical, d)
            )
        )

    def _record(self, canonical_score: float) -> Attack:
        text, best = self.text, self.steps[-1]
        return Attack(
            key=text.prompt.key,
            text=text.prompt.text,
            score=best.score,
            canonical_score=canonical_score,
            success=None if text.objective.threshold is None else self.succeeded,
            proved=self.is_proved,
            reached_at=self.reached_at,
            n_scored=self.n_scored,
            steps=tuple(self.steps),
            settings=str(self.settings),
            seed=self.seed,
            overflowed=text.overflowed,
            fields=text.prompt.fields,
            ids=best.ids,
            canonical_ids=text.canonical,
            prefix=plain_ids(text.prefix),
            suffix=plain_ids(getattr(text.objective, "suffix", None)),
            vocabulary=text.vocab.fingerprint,
            objective=text.objective.name,
        )


class Scorer:
    """Scores the candidates of many texts, one batch for each model, and sums the tokens."""

    def __init__(self) -> None:
        self.tokens_computed, self.tokens_naive, self.mode = 0, 0, ""
        self._prefix_caches: dict[int, PrefixCache] = {}  # by the id() of the model

    def score(self, pending: Sequence[tuple[AttackedText, Rows]]) -> list[Scored]:
        """The scores of the candidates of each text."""
        scored: dict[int, Scored] = {}
        by_model: dict[int, list[tuple[int, CausalObjective, Request]]] = {}
        for i, (text, rows) in enumerate(pending):
            candidates, objective = Ragged.from_rows(rows), text.objective
            if isinstance(objective, CausalObjective):
                request = text.request(candidates)
                assert request is not None, "dropped texts are left out before the search"
                by_model.setdefault(id(objective.model), []).append((i, objective, request))
                continue
            scores = np.asarray(objective(candidates), np.float64)
            threshold = np.inf if objective.threshold is None else objective.threshold
            scored[i] = Scored(scores, scores > threshold, np.zeros((len(rows), 0)))
        for model_id, members in by_model.items():
            results = score_many(
                members[0][1].model,
                [request for _, _, request in members],
                prefix_cache=self._prefix_caches.setdefault(model_id, {}),
            )
            for (i, objective, _), result in zip(members, results, strict=True):
                self.tokens_computed += result.tokens_computed
                self.tokens_naive += result.tokens_naive
                self.mode = result.mode
                log_probs = result.log_probs
                scored[i] = Scored(
                    objective.read(log_probs), objective.succeeds(log_probs), log_probs
                )
        for i, (text, rows) in enumerate(pending):
            scores = scored[i].scores
            if scores.shape != (len(rows),) or np.isnan(scores).any() or (scores == np.inf).any():
                raise RobustokError(
                    f"'{text.prompt.key}': objective '{text.objective.name}' gave {shown(scores)} "
                    f"for {len(rows)} candidates: return a finite number for each, or minus "
                    "infinity to exclude it"
                )
        return [scored[i] for i in range(len(pending))]


def run_trials(trials: Iterable[Trial], scorer: Scorer) -> Iterator[Attack]:
    """Advance all trials together; yields the record of each when it ends."""
    active: list[tuple[AttackedText, Any, Scored | None]]
    active = [(trial.text, trial.drive(), None) for trial in trials]
    while active:
        pending = []
        for text, driver, scored in active:
            try:
                pending.append((text, driver, driver.send(scored)))
            except StopIteration as stop:
                yield stop.value
        results = scorer.score([(text, rows) for text, _, rows in pending])
        active = [
            (text, driver, scored)
            for (text, driver, _), scored in zip(pending, results, strict=True)
        ]


SEARCHES: Registry[Callable[[Trial], Search]] = Registry("search")


@SEARCHES.register("beam")  # as `AttackSettings` reads it: greedy with a beam
@SEARCHES.register("greedy")
def greedy(trial: Trial) -> Search:
    """Ascent over neighborhoods (paper, algorithm 2), with a beam, and from uniform draws.

    Restarts follow while the attack has not succeeded. They end after 20 in a row that scored
    nothing new, since a short text has few tokenizations.
    """
    text, settings, seed = trial.text, trial.settings, trial.seed
    n_idle = 0
    for restart in range(settings.restarts + 1):
        n_before = trial.n_scored
        if restart == 0:
            start = text.start(settings.start, seed)
        elif drawn := text.draw("uniform", seed, 1, restart):
            start = drawn[0]
        else:
            continue
        if trial.left == 0:
            return
        yield from ascend(trial, start, restart)
        n_idle = n_idle + 1 if trial.n_scored == n_before else 0
        if trial.succeeded or n_idle == _IDLE:
            return


def ascend(trial: Trial, start: np.ndarray, restart: int) -> Search:
    """Score ``start``, then the neighbors of the ``settings.beam`` best, while they improve."""
    text, settings = trial.text, trial.settings
    scores = yield [start]
    beam = [(float(scores[0]), start)]
    for step in range(settings.steps):
        if trial.stopped:
            return
        highest, beam_ids = beam[0][0], [ids for _, ids in beam]
        rng = np.random.default_rng([check_seed(trial.seed), text.draw_key, restart, step])
        rows = choose(  # frees the neighborhoods that are not scored
            [text.neighbors(ids, d) for ids in beam_ids for d in settings.distances],
            beam_ids,
            settings.max_neighbors,
            trial.left,
            rng,
        )
        if not rows:
            return
        scores = yield rows
        top = np.argsort(-scores, kind="stable")[: settings.beam].tolist()
        beam += [(float(scores[i]), rows[i].copy()) for i in top]
        beam = sorted(beam, key=lambda entry: -entry[0])[: settings.beam]
        if beam[0][0] <= highest:
            return


def choose(
    groups: Sequence[Iterable[np.ndarray]],
    beam_ids: list[np.ndarray],
    max_neighbors: int | None,
    left: int | None,
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """The neighbors to score: each once, none of the beam, at most ``max_neighbors`` and ``left``.

    ``groups`` are the neighbors of each tokenization of the beam, ``beam_ids``, at each distance.
    Chosen rows are copies, so that the others can be freed.
    """
    rows = [row for group in groups for row in group]
    if len(groups) > 1:
        beam = {ids.tobytes() for ids in beam_ids}
        rows = list({row.tobytes(): row for row in rows if row.tobytes() not in beam}.values())
    limit = min([len(rows), *(n for n in (max_neighbors, left) if n is not None)])
    if len(rows) > limit:
        chosen = np.sort(rng.choice(len(rows), limit, replace=False)).tolist()
        rows = [rows[i].copy() for i in chosen]
    return rows


@SEARCHES.register("random")
def draw_at_random(trial: Trial) -> Search:
    """The control: uniform draws until the limit."""
    assert trial.settings.max_scored is not None
    yield [trial.text.start(trial.settings.start, trial.seed)]
    draws = trial.text.draw("uniform", trial.seed, trial.settings.max_scored, 1)
    for begin in range(0, len(draws), _CHUNK):
        if trial.stopped:
            return
        yield draws[begin : begin + _CHUNK]
