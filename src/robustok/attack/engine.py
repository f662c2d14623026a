"""Attacks on one question or prompt, on many at once, and on the batches of a fine-tuning."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robustok.attack.objectives import Margin, Objective, TargetLikelihood
from robustok.attack.records import Attack, Prompt, finite_or_none, worst_attacks
from robustok.attack.search import AttackedText, Scorer, Trial, run_trials
from robustok.attack.settings import (
    GROUP,
    AttackSettings,
    check_on_prompts,
    unsearched_ids,
    unsearched_text,
    worst_label,
)
from robustok.checks import check_ids, check_integer
from robustok.errors import RobustokError
from robustok.evaluation.comparison import Accuracy, accuracy_line
from robustok.evaluation.intervals import clustered, curve_of, share
from robustok.evaluation.questions import (
    NO_FIT,
    Window,
    check_keyed,
    check_options,
    check_questions,
    item_key,
)
from robustok.models.scored import CausalModel, Ids
from robustok.ragged import Ragged
from robustok.runtime.display import Progress, counted, no_progress
from robustok.runtime.files import JsonFields, JsonObject
from robustok.tasks.item import Item
from robustok.tokenizer.chat import Prefix
from robustok.tokenizer.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class AttackEvaluation(Accuracy):
    """Accuracy after an attack on every item, and each attack.

    >>> result = attack_items(model, vocab, items, seed=0)
    >>> result.eval_scheme, len(result.attacks)
    ('adversarial(distances=(2), start=canonical, steps=10)', 8)

    Args:
        start_accuracy: accuracy under the tokenizations that the attacks start from.
        start_low: lower 95% bound of ``start_accuracy``.
        start_high: upper 95% bound.
        proved: share of items whose tokenizations at the attack's distances were all scored and
            none succeeded.
        unsearched_ids: number of second ids of the vocabulary that were not searched.
        n_scored: number of tokenizations scored, over all items.
        attacks: the attack on each item, in the order of the items.
    """

    start_accuracy: float
    start_low: float
    start_high: float
    proved: float
    n_scored: int
    attacks: tuple[Attack, ...]
    unsearched_ids: int = 0

    def __str__(self) -> str:
        return attack_line(vars(self))

    def curve(self) -> list[dict[str, float]]:
        """Accuracy at each number of tokenizations scored at which an item was lost.

        >>> attack_items(model, vocab, items, seed=0).curve()[0]["n_scored"]
        1
        """
        most = max(attack.n_scored for attack in self.attacks)
        return curve_of("accuracy", [[a.reached_at for a in self.attacks]], most)

    def table(self) -> list[dict[str, object]]:
        """One plain dictionary per item, ready for JSON lines."""
        return [attack.as_row() for attack in self.attacks]


def attack_line(row: JsonFields) -> str:
    """An attack on questions on one line; the worst of several has no accuracy at the start."""
    details = [f"{row['proved']:.3f} proved"] if "proved" in row else []
    if "start_accuracy" in row:
        interval = "{start_accuracy:.3f} [{start_low:.3f}, {start_high:.3f}]".format_map(row)
        details.append(f"{interval} before")
    details.append(counted(row["n"], "item"))
    details.append(f"{counted(row['n_scored'], 'tokenization')} scored")
    return accuracy_line(row, ", ".join(details)) + unsearched_text(row)


@dataclass(frozen=True)
class AttackedModel:
    """A model whose questions are attacked, and the ids around every question."""

    model: Any
    vocab: Vocabulary
    prefix: Prefix
    suffix: Ids | None
    overflow: str

    def text(self, prompt: Prompt, settings: AttackSettings) -> AttackedText:
        """A question under attack; its random draws depend on its key."""
        margin = Margin(
            self.model,
            self.vocab,
            prompt.fields["choices"],
            prompt.fields["label"],
            scale=settings.objective,
            prefix=self.prefix(prompt.text) if callable(self.prefix) else self.prefix,
            suffix=self.suffix,
            window=Window(self.model, self.overflow),
        )
        return AttackedText(self.vocab, prompt, margin, prompt.key, settings.second_ids)


def attack(
    model: CausalModel,
    vocab: Vocabulary,
    text: str,
    options: Sequence[str | Ids],
    label: int,
    *,
    seed: int = 0,
    prefix: Prefix = None,
    suffix: Ids | None = None,
    overflow: str = "error",
    **settings: object,
) -> Attack:
    """Search the tokenization of ``text`` under which the right option loses most.

    >>> item = items[1]
    >>> result = attack(model, vocab, item.question, item.choices, item.label, steps=3, seed=0)
    >>> vocab.decode(result.ids), result.n_scored >= len(result.margins)
    ('hello world, is 1 odd? Answer:', True)

    Args:
        model: any causal language model of transformers.
        vocab: the model's vocabulary.
        text: the question.
        options: at least two answers, each a string, tokenized canonically, or ids.
        label: index of the right option.
        seed: any integer; decides all random draws.
        prefix: fixed ids before the text, such as those of a chat template, or a function that
            gives the ids before a text; by default none. A text after ordinary ids continues their
            text.
        suffix: fixed ids between the text and the option; by default none.
        overflow: what happens to a tokenization longer than the model's longest input. "error"
            raises; "left" cuts off the start of the prompt; "canonical" starts at the canonical
            tokenization and leaves out neighbors that are too long; "drop" leaves them out and
            refuses a start that is too long.
        **settings: fields of :class:`AttackSettings`, such as ``distances``, ``start``, ``steps``
            and ``objective``; by default as in the paper.

    Greedy ascent of max wrong z − right z over the neighborhood, z = p(option | prefix,
    tokenization, suffix), until a step gains nothing or all steps are done.

    Raises RobustokError on an unknown setting, a label that is no option, and by ``overflow``.
    Source: the paper, algorithm 2.
    """
    seed, plan = check_integer("seed", seed), AttackSettings.of(settings)
    choices = [
        option if isinstance(option, str) else check_ids(option).tolist()
        for option in check_options(options)
    ]
    prompt = Prompt(text, text, {"choices": choices, "label": label})
    attacked_model = AttackedModel(model, vocab, prefix, suffix, overflow)
    attacks, _ = attack_questions(attacked_model, [prompt], plan, seed)
    if not attacks:
        raise RobustokError(f"the text does not fit the model's max_length: {NO_FIT}")
    return attacks[0]


def attack_items(
    model: CausalModel,
    vocab: Vocabulary,
    items: Sequence[Item],
    *,
    seed: int,
    prefix: Prefix = None,
    suffix: Ids | None = None,
    overflow: str = "error",
    progress: Progress = no_progress,
    **settings: object,
) -> AttackEvaluation:
    """Attack every item, many at once, and measure the remaining accuracy.

    >>> result = attack_items(model, vocab, items, seed=0)
    >>> result.n, result.accuracy <= result.start_accuracy
    (8, True)

    Args:
        items: the questions, each with its own key.
        seed: any integer; a draw depends on it and the item's key.
        progress: called with (items done, items).

    ``model``, ``vocab``, ``prefix``, ``suffix``, ``overflow`` and ``settings`` are those of
    :func:`attack`. With ``overflow="drop"``, items whose start or canonical tokenization is longer
    than the model's longest input are left out.

    Raises RobustokError as :func:`attack`, and where no item fits the model.
    """
    start_time = time.perf_counter()
    seed, plan = check_integer("seed", seed), AttackSettings.of(settings)
    attacked_model = AttackedModel(model, vocab, prefix, suffix, overflow)
    prompts, scorer = question_prompts(items), Scorer()
    attacks, n_overflowed = attack_questions(
        attacked_model, prompts, plan, seed, scorer=scorer, progress=progress
    )
    return AttackEvaluation(
        **accuracy_under(attacks),
        eval_scheme=str(plan),
        seed=seed,
        seconds=time.perf_counter() - start_time,
        attacks=tuple(attacks),
        **unsearched_ids(vocab, plan),
        mode=scorer.mode,
        tokens_computed=scorer.tokens_computed,
        tokens_naive=scorer.tokens_naive,
        overflowed=n_overflowed + sum(a.overflowed for a in attacks),
    )


def question_prompts(items: Sequence[Item]) -> list[Prompt]:
    """The questions of items, with their options."""
    check_questions(items)
    return [Prompt.of_item(item) for item in items]


def attack_questions(
    attacked_model: AttackedModel,
    prompts: Sequence[Prompt],
    settings: AttackSettings,
    seed: int,
    *,
    scorer: Scorer | None = None,
    progress: Progress = no_progress,
) -> tuple[list[Attack], int]:
    """The attacks on questions that fit the model, and the number of tokenizations that do not."""
    trials: list[Trial] = []
    n_overflowed = 0
    for prompt in prompts:
        question = attacked_model.text(prompt, settings)
        if question.is_dropped(settings.start, seed):
            n_overflowed += question.overflowed
            continue
        trials.append(Trial(question, settings, seed))
    return run_in_groups(trials, scorer or Scorer(), progress), n_overflowed


def accuracy_under(attacks: Sequence[Attack]) -> JsonObject:
    """The accuracy on attacked questions, before and after, as fields of a result."""
    if not attacks:
        raise RobustokError(f"no item fits the model's max_length: {NO_FIT}")
    is_right = [float(np.argmax(a.steps[0].log_probs) == a.fields["label"]) for a in attacks]
    names = ("start_accuracy", "start_low", "start_high")
    return {
        **share("accuracy", [not a.success for a in attacks]),
        "n": len(attacks),
        "draws": 1,
        **dict(zip(names, clustered(is_right), strict=True)),
        "proved": float(np.mean([a.proved for a in attacks])),
        "n_scored": sum(a.n_scored for a in attacks),
    }


def summaries(parts: Mapping[str, Sequence[Attack]]) -> list[JsonObject]:
    """A row for each attack on the same prompts, and one for the worst of several.

    >>> from robustok.attack import as_objective
    >>> length = as_objective(lambda rows: rows.lengths, name="length", threshold=9)
    >>> parts = {str(n): attack_prompts(vocab, [Prompt("a", "hello")], lambda _: length, steps=n,
    ...                                 seed=0) for n in (0, 2)}
    >>> [row["eval_scheme"] for row in summaries(parts)]
    ['0', '2', 'worst of 2 attacks']

    Args:
        parts: the attacks on the prompts, in the same order for each name.

    A row has ``n``, the mean ``score`` and ``canonical_score`` (None where the objective excludes
    one) and ``n_scored``, and with a threshold the share of broken prompts ``success`` with its 95%
    bounds ``low`` and ``high``, and the share ``proved``.
    """
    rows = [_summary(name, attacks) for name, attacks in parts.items()]
    if len(rows) > 1:
        worst = _summary(worst_label(len(rows)), worst_attacks([*parts.values()]))
        rows.append(worst | {"n_scored": sum(row["n_scored"] for row in rows)})
    return rows


def _summary(name: str, attacks: Sequence[Attack]) -> JsonObject:
    row: JsonObject = {
        "eval_scheme": name,
        "n": len(attacks),
        "canonical_score": finite_or_none(float(np.mean([a.canonical_score for a in attacks]))),
        "score": finite_or_none(float(np.mean([a.score for a in attacks]))),
        "n_scored": sum(a.n_scored for a in attacks),
    }
    if all(a.success is not None for a in attacks):
        row |= share("success", [bool(a.success) for a in attacks])
        row["proved"] = float(np.mean([a.proved for a in attacks]))
    return row


def run_in_groups(
    trials: Sequence[Trial], scorer: Scorer, progress: Progress = no_progress
) -> list[Attack]:
    """Run the trials in groups; the attacks in the order of the trials."""
    attack_of: dict[str, Attack] = {}
    for begin in range(0, len(trials), GROUP):
        for attack in run_trials(trials[begin : begin + GROUP], scorer):
            attack_of[attack.key] = attack
            progress(len(attack_of), len(trials))
    return [attack_of[trial.text.prompt.key] for trial in trials]


def attack_prompts(
    vocab: Vocabulary,
    prompts: Sequence[Prompt],
    objective: Callable[[Prompt], Objective],
    /,
    *,
    seed: int,
    progress: Progress = no_progress,
    **settings: object,
) -> list[Attack]:
    """Search the tokenization of each prompt with the highest score, many prompts at once.

    >>> from robustok.attack import as_objective
    >>> length = as_objective(lambda rows: rows.lengths, name="length")
    >>> prompts = [Prompt("a", "hello"), Prompt("b", "world")]
    >>> [a.key for a in attack_prompts(vocab, prompts, lambda prompt: length, seed=0)]
    ['a', 'b']

    Args:
        vocab: the model's vocabulary.
        prompts: the prompts, each with its own key and none empty.
        objective: gives what is maximized for a prompt, such as a :class:`NamedObjective`.
        seed: any integer; a draw depends on it and the text.
        progress: called with (prompts done, prompts).
        **settings: fields of :class:`AttackSettings` but ``objective``; by default as in the paper.

    Raises RobustokError for an empty prompt, for one longer than the model's longest input, for
    prompts that share a key, and on an unknown setting.
    """
    prompts = check_keyed("prompt", prompts)
    seed, plan = check_integer("seed", seed), AttackSettings.of(settings)
    check_on_prompts(plan)
    texts = [AttackedText(vocab, p, objective(p), second_ids=plan.second_ids) for p in prompts]
    return run_in_groups([Trial(text, plan, seed) for text in texts], Scorer(), progress)


class Adversary:
    """Attacks the questions of every n-th batch; the option ``adversary`` of ``finetune``.

    >>> from robustok.training import finetune
    >>> adversary = Adversary(model, vocab, items, every=2, max_scored=8, seed=0)
    >>> done = finetune(model, vocab, items, sampler=rt.sampler("uniform", vocab), steps=2,
    ...                 batch_size=2, learning_rate=1e-3, seed=0, out="runs/adv",
    ...                 adversary=adversary)
    >>> adversary.n_scored > 0
    True

    Args:
        model: the model in training.
        vocab: its vocabulary.
        items: the questions that it is trained on, in the same order.
        every: attacks one batch of so many, at least 1.
        max_scored: tokenizations scored for a question, at least 2.
        prefix: ids before every question, those given to ``finetune``; by default none.
        seed: any integer; it and the epoch decide which neighbors are scored.

    An attack is a greedy ascent of minus the log-probability of the answer, from the canonical
    tokenization, with a quarter of ``max_scored`` neighbors a step, by the weights before the step
    of training. A question too long for the model is not attacked.

    Raises RobustokError for a number out of range.
    """

    def __init__(
        self,
        model: CausalModel,
        vocab: Vocabulary,
        items: Sequence[Item],
        *,
        every: int = 4,
        max_scored: int = 32,
        prefix: Ids | None = None,
        seed: int = 0,
    ) -> None:
        if every < 1 or max_scored < 2:
            raise RobustokError("every must be at least 1, and max_scored at least 2")
        self.model, self.vocab, self.items = model, vocab, items
        self.every, self.prefix, self.seed, self.n_scored = every, prefix, seed, 0
        self.settings = AttackSettings(
            steps=8, max_neighbors=max(1, max_scored // 4), max_scored=max_scored
        )

    @property
    def spec(self) -> str:
        """The settings as one string, for the record of a training."""
        return f"every {self.every}: {self.settings}, seed {self.seed}"

    def __call__(self, numbers: Sequence[int], epoch: int = 0) -> Ragged:
        """A tokenization with a low probability of the answer, for each of some numbers of items.

        In another ``epoch`` other neighbors of a question are scored.
        """
        prompts: list[Prompt] = []
        ids: dict[str, np.ndarray] = {}
        losses: dict[str, _AnswerLoss] = {}
        for number in dict.fromkeys(numbers):
            key, item = str(number), self.items[number]
            losses[key] = _AnswerLoss(self.model, self.vocab, item.answer, prefix=self.prefix)
            text = AttackedText(self.vocab, Prompt(key, item.question), losses[key])
            ids[key] = text.canonical
            # A question too long for an attack is left to the data set's overflow policy.
            if text.max_length is None or len(ids[key]) <= text.max_length:
                prompts.append(text.prompt)
        if prompts:
            attacks = attack_prompts(
                self.vocab,
                prompts,
                lambda prompt: losses[prompt.key],
                seed=item_key(f"{self.seed}/{epoch}") if epoch else self.seed,
                **vars(self.settings),
            )
            self.n_scored += sum(attack.n_scored for attack in attacks)
            ids |= {attack.key: attack.ids for attack in attacks}
        return Ragged.from_rows([ids[str(number)] for number in numbers])


class _AnswerLoss(TargetLikelihood):
    name = "loss"

    def read(self, log_probs: np.ndarray) -> np.ndarray:
        return -super().read(log_probs)
