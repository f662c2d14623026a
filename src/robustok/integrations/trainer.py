"""Stochastic tokenization for a trainer of transformers or TRL in one line."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from robustok.checks import check_integer
from robustok.errors import RobustokError
from robustok.guard import Guard
from robustok.integrations.perturb import Perturb
from robustok.integrations.perturb import TorchCollator as TorchCollator
from robustok.integrations.rows import Columns, Row, padded, repacked
from robustok.integrations.stochastic.switch import check_deterministic
from robustok.models.load import max_length_of
from robustok.runtime.packages import require
from robustok.samplers import Sampler
from robustok.tokenizer.vocabulary import Vocabulary

require("transformers")

from tqdm.auto import tqdm  # noqa: E402
from transformers import (  # noqa: E402
    DataCollatorForLanguageModeling,
    DataCollatorWithFlattening,
    DataCollatorWithPadding,
    TrainerCallback,
    default_data_collator,
)

Collate = Callable[[list[Row]], Any]  # what a batch is depends on the trainer
# What the tokenizer of a collator pads.
_PADDED = {"input_ids", "attention_mask", "token_type_ids", "special_tokens_mask"}
# Columns of TRL's preferences: answers to `prompt_ids`, or whole texts that are judged.
_COMPLETIONS = ("chosen_ids", "rejected_ids", "completion_ids", "KL_completion_ids")
_STRATEGIES = ("bfd", "bfd_split", "wrapped")
_FIRST_ROWS = 32  # checked at the call


def robustify(
    trainer: Any,
    scheme: str | Sampler,
    *,
    seed: int,
    where: str | None = None,
    tokenizer: Any = None,
    max_length: int | None = None,
    share_group: bool = True,
) -> None:
    """Draw new tokenizations of a trainer's rows in every epoch.

    >>> from transformers import Trainer, TrainingArguments
    >>> args = TrainingArguments("runs/t", report_to=[], dataloader_pin_memory=False, use_cpu=True)
    >>> encoded = [vocab.encode(text).tolist() for text in texts]
    >>> rows = [{"input_ids": ids, "labels": [-100, *ids[1:]]} for ids in encoded]
    >>> trainer = Trainer(model, args, train_dataset=rows)
    >>> robustify(trainer, "uniform-k(alpha=1)", seed=0, tokenizer=tokenizer)
    >>> next(iter(trainer.get_train_dataloader()))["input_ids"].shape[0]
    2

    Args:
        trainer: a Trainer of transformers, or TRL's SFTTrainer, DPOTrainer, KTOTrainer,
            RewardTrainer, GRPOTrainer, RLOOTrainer or DistillationTrainer, made as usual.
        scheme: a spec, a schedule such as ``uniform-k(alpha=0->1)``, or a sampler.
        seed: any integer.
        where: what is perturbed: ``unlabeled`` ids (label -100: prompts), what the ``user`` said in
            a chat template, or ``all`` ids, labels moving with them. Special tokens and the headers
            of a chat template always stay. By default the unlabeled ids of rows that have
            labels; rows without any need it.
        tokenizer: the trainer's by default.
        max_length: longest row, at least 1; by default ``args.max_length`` of the trainer, or else
            the model's longest input, for rollouts less ``args.max_completion_length``. For
            preferences, which TRL cuts, no more than that default.
        share_group: for GRPO and RLOO, whether the generations of one prompt share its draw.

    Training rows are perturbed before the trainer's own collator; evaluation and prediction stay
    canonical. Rows hold canonical ``input_ids``, padded or not, packed or not (TRL's `bfd`,
    `bfd_split` and `wrapped`), of a map-style or iterable data set. Labels, and draws that are too
    long, are those of `Perturb`; the prompt of a rollout whose draw is too long stays canonical. Of
    preferences and rollouts the prompts are perturbed, of a reward model's both texts. With a
    collator that labels every id itself, as DataCollatorForLanguageModeling without ``mlm``,
    ``where`` must be ``all``.

    The trainer's log has ``perturb/changed_rows``, ``perturb/overflow`` (rows whose draws do not
    fit), ``perturb/replaced`` (share of the tokens) and ``perturb/splits_per_token`` of the epoch
    so far, beside each loss. After each epoch a line says how much was perturbed, as a warning
    where a row was not. Both count the rows of all processes of a distributed training.

    The draw of a row depends only on ``seed``, the epoch and the row's ids (of groups that do not
    share, also on the number in the group): not on workers, batches, processes, or a restart. The
    strength of a schedule also depends on the step, and moves from the first to the last.

    Raises RobustokError at the call for what the first rows show (a stream of PyTorch is read when
    the training begins) as `Perturb` does, for a tokenizer that draws itself, packing of an unknown
    form, reference probabilities computed before training, processes that the trainer does not
    join, and a trainer that is robustified already.
    """
    if max_length is not None:
        check_integer("max_length", max_length, 1)
    if not hasattr(trainer, "get_train_dataloader"):
        raise RobustokError(
            f"robustify takes a trainer, not {type(trainer).__name__}: give the Trainer that trains"
        )
    tokenizer = tokenizer or trainer.processing_class
    if tokenizer is None:
        raise RobustokError("the trainer has no tokenizer: give robustify one as tokenizer=...")
    check_deterministic(tokenizer)
    _check_trainer(trainer)
    args = trainer.args
    wrapped = getattr(args, "packing", False) and args.packing_strategy == "wrapped"
    is_rollout = hasattr(trainer, "_tokenize_prompts")
    rows = [] if is_rollout else _first_rows(trainer)
    cut = None if is_rollout else _cut_of(trainer, rows)
    limit = _longest(trainer, max_length, cut, is_rollout=is_rollout)
    perturb = Perturb(
        scheme,
        seed=seed,
        tokenizer=tokenizer,
        where=where or ("unlabeled" if is_rollout else None),
        max_length=None if wrapped else limit,
        cut=cut,
    )
    if is_rollout:
        _perturb_rollouts(trainer, perturb, share_group=share_group)
    else:
        collator = partial(
            StochasticCollator,
            perturb,
            pad_id=getattr(tokenizer, "pad_token_id", None) or 0,
            side=getattr(tokenizer, "padding_side", "right"),
            block_size=limit if wrapped else None,
        )
        collator(trainer.data_collator).check(rows)
        _collate_with(trainer, collator)
    # Before the reporters, which log what the callbacks before them have added.
    trainer.callback_handler.callbacks.insert(1, EpochCallback(perturb))


def _first_rows(trainer: Any) -> list[Row]:
    """Some rows as the collator gets them; none of a stream that can be read only once."""
    dataset = trainer.train_dataset
    if hasattr(dataset, "take"):  # of `datasets`, which reads a stream from its start each time
        rows = list(itertools.islice(dataset, _FIRST_ROWS))
    elif hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"):
        rows = [dataset[i] for i in range(min(len(dataset), _FIRST_ROWS))]
    else:
        return []
    if trainer.args.remove_unused_columns and all(isinstance(row, Mapping) for row in rows):
        trainer._set_signature_columns_if_needed()
        names = trainer._signature_columns
        rows = [{name: row[name] for name in row if name in names} for row in rows]
    return rows


def _cut_of(trainer: Any, rows: Sequence[Row]) -> str | None:
    """The end that the trainer cuts ``rows`` at.

    None for preferences of which TRL would cut the completion that a prompt pushes beyond the end.
    """
    if getattr(trainer.args, "truncation_mode", "") == "keep_end":
        return "start"
    has_prompt = any(isinstance(row, Mapping) and "prompt_ids" in row for row in rows)
    return None if has_prompt else "end"


def _collate_with(trainer: Any, wrap: Callable[[Collate], StochasticCollator]) -> None:
    """Put a collator before the trainer's own one while the loader of training rows is made."""
    make = trainer.get_train_dataloader

    def get_train_dataloader(*args: object, **kwargs: object) -> Any:
        before = trainer.data_collator
        trainer.data_collator = wrap(before)
        try:
            return make(*args, **kwargs)
        finally:
            trainer.data_collator = before

    trainer.get_train_dataloader = get_train_dataloader


def _longest(
    trainer: Any, max_length: int | None, cut: str | None, *, is_rollout: bool
) -> int | None:
    """The longest row: ``max_length``, or that of the trainer or model, without completions.

    Rows that the trainer alone cuts (``cut`` is None) are no longer than its own.
    """
    own = getattr(trainer.args, "max_length", None)
    longest = own or max_length_of(trainer.model)
    if is_rollout and longest and not own:
        longest = max(1, longest - (trainer.args.max_completion_length or 0))
    if cut is None and not is_rollout and longest and max_length:
        return min(longest, max_length)
    return max_length or longest


def _check_trainer(trainer: Any) -> None:
    if any(isinstance(c, EpochCallback) for c in trainer.callback_handler.callbacks):
        raise RobustokError("this trainer is robustified already: call robustify once")
    args = trainer.args
    n_processes = int(os.environ.get("WORLD_SIZE", "1"))
    if n_processes != getattr(args, "world_size", n_processes):
        raise RobustokError(
            f"{n_processes} processes were started, and this trainer would train in each of them "
            "alone: without GPUs, set use_cpu=True in its arguments"
        )
    strategy = getattr(args, "packing_strategy", None)
    if getattr(args, "packing", False) and strategy not in _STRATEGIES:
        raise RobustokError(
            f"rows packed by '{strategy}' cannot be perturbed: choose packing_strategy from "
            f"{', '.join(_STRATEGIES)}, or packing=False"
        )
    if getattr(args, "precompute_ref_log_probs", False):
        raise RobustokError(
            "precompute_ref_log_probs=True computes reference probabilities for canonical prompts "
            "once: set it to False"
        )
    # TRL's trainers encode their data set and prompts themselves.
    tokenizer = trainer.processing_class
    if _is_of_trl(trainer) and hasattr(tokenizer, "wrapped_tokenizer") and tokenizer.training:
        raise RobustokError(
            "the trainer's tokenizer draws itself, so its rows may be drawn already: make the "
            "trainer with the plain tokenizer, or call eval() on the stochastic one first"
        )


def _is_of_trl(value: object) -> bool:
    return any(base.__module__.startswith("trl.") for base in type(value).__mro__)


class EpochCallback(TrainerCallback):
    """Sets the epoch that worker processes share, and reports how much was perturbed in it.

    Processes of a distributed training sum their counts after a logged step and after an epoch.
    """

    def __init__(self, perturb: Perturb) -> None:
        self.perturb = perturb
        self.begun: int | None = None  # passes over the data before this one; None: not training
        self._metrics: dict[str, float] = {}  # of the step that is logged next

    def on_train_begin(self, args, state, control, **kwargs) -> None:  # type: ignore[override]
        self.begun = None

    def on_epoch_begin(self, args, state, control, **kwargs) -> None:  # type: ignore[override]
        # A stream that is continued is collated again from its start.
        is_again = self.begun is None and state.num_train_epochs == sys.maxsize
        before = 0 if is_again else state.global_step
        self.perturb.set_batches(before, state.max_steps, args.gradient_accumulation_steps)
        # Of a stream, state.epoch is the share of max_steps: passes are counted instead.
        self.begun = int(state.epoch or 0) if self.begun is None else self.begun + 1
        self.perturb.state.epoch = self.begun
        self.perturb.counts.zero_()

    def on_step_end(self, args, state, control, **kwargs) -> None:  # type: ignore[override]
        if control.should_log:
            self._metrics = self.perturb.summed(args.device).metrics()

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:  # type: ignore[override]
        if logs is not None and "loss" in logs:
            for target in (logs, *state.log_history[-1:]):
                target.update(self._metrics)

    def on_epoch_end(self, args, state, control, **kwargs) -> None:  # type: ignore[override]
        counts = self.perturb.summed(args.device)
        if control.should_log:  # logging_strategy="epoch"
            self._metrics = counts.metrics()
        if state.is_world_process_zero:
            # To standard output and above the bar, as the losses.
            self.perturb.log_epoch(tqdm.write, counts)


@dataclass
class StochasticCollator:
    """Perturb rows, then collate them as before.

    Rows are padded first, on ``side``, for transformers' collators that do not pad, or not the
    labels. With ``block_size`` they are joined and cut into blocks again.
    """

    perturb: Perturb
    collate: Collate
    pad_id: int
    side: str
    block_size: int | None

    def check(self, rows: Sequence[Row]) -> None:
        """Raise the error that a batch of these rows would raise."""
        texts = _texts_of(rows, self.perturb)
        self.perturb.check(texts or [self._with_labels(row) for row in rows])

    def __call__(self, rows: Sequence[Row]) -> Any:
        if rows and {*_COMPLETIONS} & {*rows[0]}:
            return self.collate(perturbed_preferences(self.perturb, rows))
        columns = self.perturb.drawn([self._with_labels(row) for row in rows])
        if self.block_size:
            columns = repacked(columns, self.block_size)
        return self.collate(self._padded(columns))

    def _padded(self, rows: Sequence[Columns]) -> list[Row]:
        padding = (DataCollatorWithPadding, DataCollatorForLanguageModeling)
        pads_some = isinstance(self.collate, padding)
        names = {name for row in rows for name in row.per_id}
        if self.collate is default_data_collator or (pads_some and not names <= _PADDED):
            return padded(rows, self.pad_id, self.side)
        return [row.row for row in rows]

    def _with_labels(self, row: Row) -> Row:
        """The row with labels of all ids where its collator makes them."""
        collate = self.collate
        if "input_ids" not in row:
            return row
        if isinstance(collate, DataCollatorForLanguageModeling) and not collate.mlm:
            return {**row, "labels": row["input_ids"]}
        is_marked = _is_of_trl(collate) and {"completion_mask", "assistant_masks"} & {*row}
        labels_rest = isinstance(collate, DataCollatorWithFlattening) or _is_of_trl(collate)
        return {"labels": row["input_ids"], **row} if labels_rest and not is_marked else row


def perturbed_preferences(perturb: Perturb, rows: Sequence[Row]) -> list[Row]:
    """Rows with drawn prompts; all completions stay, and share the drawn prompt.

    A prompt stays canonical where its draw would push a completion beyond ``max_length``. Rows of a
    reward model, which have no prompt, have their texts drawn.

    Raises RobustokError for probabilities of canonical prompts, and where completions would be
    drawn.
    """
    texts, results = iter(perturb(_texts_of(rows, perturb))), []
    for row in rows:
        if "prompt_ids" in row:
            new = next(texts)
            drawn = {"prompt_ids": new["input_ids"][: new["completion_mask"].count(0)]}
        else:
            drawn = {name: next(texts)["input_ids"] for name in _COMPLETIONS if name in row}
        results.append({**row, **drawn})
    return results


def _texts_of(rows: Sequence[Row], perturb: Perturb) -> list[Row]:
    """What is drawn of preferences: a prompt with its longest completion, or each text."""
    texts: list[Row] = []
    for row in rows:
        completions = [list(row[name]) for name in _COMPLETIONS if name in row]
        if "prompt_ids" not in row or not completions:
            texts += [{"input_ids": ids, "label": 0} for ids in completions]
            continue
        if perturb.where == "all":
            raise RobustokError(
                "where='all' would perturb the completions of preferences: choose 'unlabeled' (the "
                "prompt) or 'user'"
            )
        if references := [name for name in row if name.startswith("ref_")]:
            raise RobustokError(
                f"{references[0]} is of canonical prompts: remove the column, so that the trainer "
                "computes it for drawn ones"
            )
        longest, prompt = max(completions, key=len), list(row["prompt_ids"])
        mask = [0] * len(prompt) + [1] * len(longest)
        texts.append({"input_ids": prompt + longest, "completion_mask": mask})
    return texts


def _perturb_rollouts(trainer: Any, perturb: Perturb, *, share_group: bool) -> None:
    """Draw the prompts of a trainer with rollouts while it trains; completions are its own."""
    if not share_group and getattr(trainer, "use_vllm", False):
        raise RobustokError(
            "vLLM generates a whole group from one prompt: choose share_group=True, or "
            "use_vllm=False"
        )
    tokenize, size = trainer._tokenize_prompts, getattr(trainer, "num_generations", 1)

    def tokenize_and_draw(prompts: list[object]) -> Any:
        prompt_ids, *rest = tokenize(prompts)
        if rest and rest[0] is not None:
            raise RobustokError("prompts with images cannot be perturbed: use text prompts")
        if trainer.model.training:
            first = 0 if share_group else trainer.accelerator.process_index * len(prompt_ids)
            numbers = [0 if share_group else (first + i) % size for i in range(len(prompt_ids))]
            rows = [{"input_ids": list(ids)} for ids in prompt_ids]
            perturb.set_batches(trainer.state.global_step, trainer.state.max_steps, 1)
            prompt_ids = [row["input_ids"] for row in perturb(rows, numbers)]
        return prompt_ids, *rest

    trainer._tokenize_prompts = tokenize_and_draw


_DRIFT = ("drift/sequences", "drift/ids", "drift/changed")


class DriftCallback(TrainerCallback):
    """Reports how many sampled ids a decoding and encoding would change, in a trainer's logs.

    >>> drift = DriftCallback(vocab)
    >>> reward = drift.observed(lambda completions, **_: [0.0 for _ in completions])
    >>> reward(completions=["the"], completion_ids=[[*vocab.encode("t"), *vocab.encode("he")]])
    [0.0]
    >>> drift.metrics()
    {'drift/sequences': 1.0, 'drift/ids': 1.0, 'drift/changed': 1.0}

    Args:
        vocab: the vocabulary of the policy's tokenizer.

    With TRL, wrap a reward function and give the callback to the trainer::

        drift = DriftCallback(vocab)
        GRPOTrainer(..., reward_funcs=drift.observed(reward), callbacks=[drift])

    In a loop of one's own, call :meth:`add` with each batch. The metrics are shares from 0 to 1
    since the last log: ``drift/sequences`` of the sequences that are not canonical, ``drift/ids``
    of the ids that the encoder would not give, ``drift/changed`` of the sequences that decoding and
    encoding changes (those that are not canonical, not UTF-8, or spell a special token).
    """

    def __init__(self, vocab: Vocabulary) -> None:
        self._guard = Guard(vocab, allow_special=True, max_length=None, mid_text=True)
        self._totals = np.zeros((len(_DRIFT), 2), np.int64)

    def add(self, completion_ids: Iterable[Any]) -> dict[str, float]:
        """Check a batch and return its metrics.

        Args:
            completion_ids: the sampled ids of each completion.
        """
        # A row may be a tensor on any device.
        rows = [row.tolist() if hasattr(row, "tolist") else row for row in completion_ids]
        verdicts = self._guard.check_batch(rows)
        sequences, ids = len(verdicts), len(verdicts.given)
        not_canonical, changed = (~verdicts.canonical).sum(), (~verdicts.round_trip).sum()
        drifted = verdicts.deviates.sum()
        counts = np.array([[not_canonical, sequences], [drifted, ids], [changed, sequences]])
        self._totals += counts
        return _shares(counts)

    def metrics(self) -> dict[str, float]:
        """The metrics of all batches since the last log; empty without one."""
        return _shares(self._totals)

    def observed(self, reward: Callable[..., Any]) -> Callable[..., Any]:
        """A TRL reward function that also measures the drift of the completions.

        Args:
            reward: a reward function with TRL's signature; it is called unchanged.

        Metrics go through TRL's ``log_metric`` where the trainer passes it, so that every reporter
        has them, and into the next log otherwise.
        """

        def with_drift(*args: Any, completion_ids: Any = None, **kwargs: Any) -> Any:
            if completion_ids is None:
                raise RobustokError(
                    "the trainer passes no completion_ids to reward functions: upgrade trl, or "
                    "call DriftCallback.add in the training loop"
                )
            metrics = self.add(completion_ids)
            log_metric = kwargs.get("log_metric")
            if log_metric is not None:
                for name, value in metrics.items():
                    log_metric(name, value)
            return reward(*args, completion_ids=completion_ids, **kwargs)

        with_drift.__name__ = getattr(reward, "__name__", type(reward).__name__)
        return with_drift

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:  # type: ignore[override]
        metrics = self.metrics()
        self._totals[:] = 0
        for target in (logs if logs is not None else {}, *state.log_history[-1:]):
            target.update(metrics | target)


def _shares(counts: np.ndarray) -> dict[str, float]:
    """The metrics of counts, int64 [metrics, 2]: how many, and of how many."""
    rows = zip(_DRIFT, counts.tolist(), strict=True)
    return {name: part / whole for name, (part, whole) in rows if whole}
