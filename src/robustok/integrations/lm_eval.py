"""lm-eval's model `robustok`: transformers models whose contexts are tokenized by a scheme.

With ``scheme=canonical`` it is lm-eval's own ``hf``, to the digit, except where a continuation
begins inside a token. Otherwise every context is drawn anew, its special tokens left in place, and
continuations stay canonical, also those that a metric asks for without their context. A request of
a document without contexts, such as a whole sentence, is drawn itself. Draws depend on (seed, draw,
context), so they are the same for every model and for all continuations of one context.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from robustok.runtime.packages import require

require("torch", "lm_eval")

import lm_eval
import numpy as np
import torch
from lm_eval.api.metrics import aggregate_subtask_metrics, pooled_sample_stderr
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM
from lm_eval.utils import (
    get_rolling_token_windows,
    make_disjoint_window,
    simple_parse_args_string,
)
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from robustok.errors import RobustokError
from robustok.evaluation.comparison import Difference, difference
from robustok.evaluation.questions import item_key
from robustok.models.load import (
    base_of_lora,
    check_model,
    has_lora,
    load_config,
    load_tokenizer,
    merge_lora,
)
from robustok.models.served import ServedModel
from robustok.ragged import Ragged
from robustok.runtime.display import Progress
from robustok.runtime.files import JsonFields, JsonObject, write_json
from robustok.runtime.hub import (
    is_packaged,
    is_served,
    is_unreachable,
    packaged_folder,
    split_revision,
)
from robustok.samplers import sampler
from robustok.scoring.engine import not_a_number
from robustok.tokenizer.sources import tokenizer_files
from robustok.tokenizer.vocabulary import Vocabulary

_log = logging.getLogger(__name__)

# Without types: a decorator hides that of one from type checkers.
Transformers: Any = HFLM
Base: Any = TemplateLM

_DRAWING = ("scheme", "draws", "seed", "draw")  # arguments that a loaded model can change
_NEW_TOKENS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
_TRACKER = "tracker"  # the key of a result under which it has lm-eval's writer of files
IDENTITY = "robustok"  # the key of a response cache under which it says whose answers it holds


class Drawing(Base):
    """What models in this process and behind a server share: how contexts are drawn."""

    tokenizer: Any
    vocab: Vocabulary

    def draw_with(
        self, scheme: str = "canonical", draws: int = 1, seed: int = 0, draw: int | None = None
    ) -> None:
        """Draw contexts by another scheme, or with another seed, from now on."""
        self.sampler = sampler(str(scheme), self.vocab)
        self.draws, self.seed, self.draw = int(draws), int(seed), draw
        if self.draws < 1:
            raise RobustokError(f"{draws} draws evaluate nothing: ask for at least 1")

    @property
    def canonical(self) -> bool:
        return self.sampler.spec == "canonical"

    @property
    def number(self) -> int:
        """The number of the draw that answers; raises RobustokError where several were asked."""
        if self.draw is None and self.draws > 1 and not self.canonical:
            raise RobustokError(
                f"one run answers for one draw: ask for {self.draws} with `robustok lm-eval`, "
                "which goes draw by draw and averages the scores, or for one of them (draw=0)"
            )
        return self.draw or 0

    @property
    def identity(self) -> str:
        """Everything besides the strings that decides an answer; identifies a response cache."""
        return f"{self.sampler.spec} seed={self.seed} draw={self.number}"

    def set_cache_hook(self, cache_hook: Any) -> None:
        """A response cache is keyed by strings, so it must hold the answers of one draw only."""
        entries = cache_hook.dbdict
        if entries is not None:
            if not len(entries):
                entries[IDENTITY] = self.identity
            elif (cached := entries.get(IDENTITY)) != self.identity:
                raise RobustokError(
                    f"this response cache holds answers of {cached or 'another model'}, not of "
                    f"{self.identity}: give --use_cache another path"
                )
        super().set_cache_hook(cache_hook)

    def loglikelihood(self, requests: Any, disable_tqdm: bool = False) -> Any:
        if self.canonical:
            return super().loglikelihood(requests, disable_tqdm)
        # A request without a context, of a document that has some, is a choice without its context.
        after_context = {_document(one) for one in requests if one.args[0]} - {None}
        # No string to be remembered by: lm-eval would take this draw's answer for all.
        prepared = [
            (None, *self._drawn_pair(*request.args, is_choice=_document(request) in after_context))
            for request in requests
        ]
        return self._loglikelihood_tokens(prepared, disable_tqdm=disable_tqdm)

    def _checked(self, requests: Any, answers: Any) -> Any:
        """The answers; raises RobustokError for a log-likelihood that is not a number."""
        for request, (log_likelihood, _) in zip(requests, answers, strict=True):
            if not math.isfinite(log_likelihood) and log_likelihood != -math.inf:
                raise not_a_number(self._name_of(request), "log-likelihood")
        return answers

    def _name_of(self, request: tuple[Any, list[int], list[int]]) -> str:
        text = self.tokenizer.decode([*request[1], *request[2]])
        return f"the request {text[-80:]!r}"

    def _drawn_pair(
        self, context: str, continuation: str, is_choice: bool = False
    ) -> tuple[list[int], list[int]]:
        """The ids of a request, canonical where it is a choice, whose context alone is drawn."""
        if not context:
            ids = self.tok_encode(continuation, add_special_tokens=False)
            # As in lm-eval, a start token of the text itself is its context.
            if len(ids) and ids[0] == self.prefix_token_id:
                ids = ids[1:]
            return [self.prefix_token_id], ids if is_choice else self._draw(ids, continuation)
        before, after = self._encode_pair(context, continuation)
        return self._draw(before, context), after

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """The ids of both; where a token holds the border, each is encoded for itself.

        lm-eval cuts there by the number of tokens of the context, so that the continuation loses
        characters, or has no token at all.
        """
        before, after = super()._encode_pair(context, continuation)
        is_whole = self.tok_encode(context + continuation) == [*before, *after]
        if not (is_whole and before and after):
            before = self.tok_encode(context)
            after = self.vocab.encode_continuations([continuation])[0].tolist()
        return before, after

    def _draw(self, ids: Sequence[int], text: str) -> list[int]:
        if not len(ids):
            return []
        rows = Ragged.from_rows([np.asarray(ids, np.int32)])
        keys = np.array([item_key(text)], np.int64)
        samples = self.sampler.sample_batch(
            rows, seed=self.seed, keys=keys, epoch=self.number, threads=1
        )
        return samples[0].tolist()

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> Any:
        if self.canonical:
            return super().loglikelihood_rolling(requests, disable_tqdm)
        return [self._rolling(request.args[0]) for request in requests]

    def _rolling(self, text: str) -> float:
        requests = [(None, *window) for window in self._windows(text)]
        answers = self._loglikelihood_tokens(requests, disable_tqdm=True)
        return sum(answer[0] for answer in answers)

    def _windows(self, text: str) -> Iterator[tuple[list[int], list[int]]]:
        """The parts of a drawn text, each after as much of the text before it as fits."""
        windows = get_rolling_token_windows(
            token_list=self._draw(self.tok_encode(text), text),
            prefix_token=self.prefix_token_id,
            max_seq_len=self.max_length,
            context_len=1,
        )
        return map(make_disjoint_window, windows)


@register_model("robustok")
class RobustokLM(Drawing, Transformers):
    """A causal language model evaluated under drawn tokenizations.

    >>> from robustok.models import save_tokenizer
    >>> model.save_pretrained("runs/lm")
    >>> save_tokenizer("tokenizer.json", "runs/lm")
    >>> wrapped = RobustokLM("runs/lm", scheme="uniform", draws=3, seed=0, device="cpu")
    >>> wrapped.sampler, wrapped.draws
    (<uniform>, 3)

    ``lm_eval --model robustok --model_args pretrained=PATH,scheme=uniform,draws=10,seed=0``

    A run answers for one draw, number ``draw``. ``robustok lm-eval`` asks draw after draw, of
    ``draws`` of them, and averages the accuracies, which is what the paper reports.
    """

    def __init__(
        self,
        pretrained: object = None,
        scheme: str = "canonical",
        draws: int = 1,
        seed: int = 0,
        draw: int | None = None,
        **kwargs: object,
    ) -> None:
        if pretrained is None:
            raise RobustokError(
                "which model? Name a folder or one of the hub: --model_args pretrained=MODEL"
            )
        self._adapter: str | None = None
        if isinstance(pretrained, str):
            if is_served(pretrained):
                raise RobustokError("give a model behind a server to `robustok lm-eval`")
            if has_lora(pretrained):
                self._adapter = pretrained
                if tokenizer_files(Path(pretrained)):  # or that of the base
                    kwargs.setdefault("tokenizer", pretrained)
                pretrained = base_of_lora(pretrained)
            if is_packaged(pretrained):
                pretrained = str(packaged_folder(pretrained))
            check_model(pretrained)
            if not Path(pretrained).is_dir() and is_unreachable():
                load_config(pretrained)  # fails without lm-eval's minute of requests
            pretrained, revision = split_revision(pretrained)
            if revision is not None:
                kwargs.setdefault("revision", revision)
        for name in kwargs:  # lm-eval would pass a mistyped one on to the model
            if close := get_close_matches(name, ["scheme", "draws", "seed"], 1, 0.7):
                raise RobustokError(f"unknown model argument '{name}': did you mean {close[0]}?")
        kwargs.setdefault("trust_remote_code", False)
        super().__init__(pretrained, **kwargs)
        if self.backend != "causal":
            raise RobustokError("robustok draws the contexts of causal language models only")
        self.vocab = Vocabulary.load(self.tokenizer)
        self.draw_with(scheme, draws, seed, draw)

    def _create_model(self, *args: object, **kwargs: object) -> None:
        """Load the model; LoRA weights are merged into theirs, as `robustok evaluate` does.

        lm-eval's own way (``peft=``) cuts the embeddings to the size of the tokenizer first, and
        with it the probabilities.
        """
        super()._create_model(*args, **kwargs)
        if self._adapter:
            self._model = merge_lora(self._model, self._adapter)

    def _loglikelihood_tokens(self, requests: Any, *args: object, **options: object) -> Any:
        answers = super()._loglikelihood_tokens(requests, *args, **options)
        return self._checked(requests, answers)

    def tok_batch_encode(
        self,
        strings: Sequence[str],
        padding_side: str = "left",
        left_truncate_len: int | None = None,
        truncation: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The contexts of a batch of generations, drawn, and which of their ids are not padding.

        As in lm-eval, those longer than ``left_truncate_len`` lose their beginning, with a warning.
        """
        if self.canonical:
            return super().tok_batch_encode(strings, padding_side, left_truncate_len, truncation)
        ids, mask = super().tok_batch_encode(strings, padding_side, None, truncation)
        samples = [
            torch.tensor(self._draw(row[real.bool()].tolist(), text), dtype=torch.long)
            for text, row, real in zip(strings, ids, mask, strict=True)
        ]
        longest = max(map(len, samples))
        if left_truncate_len and longest > left_truncate_len:
            _log.warning(
                "drawn contexts of up to %d tokens are cut to their last %d: the beginning is lost",
                longest,
                left_truncate_len,
            )
            samples = [row[-left_truncate_len:] for row in samples]

        def padded(rows: list[torch.Tensor], value: int) -> torch.Tensor:
            return pad_sequence(rows, True, value, padding_side=padding_side)

        pad = self.tokenizer.pad_token_id
        return padded(samples, pad), padded([torch.ones_like(row) for row in samples], 0)


class ServedLM(Drawing):
    """A model behind a server, as :class:`RobustokLM` is one of this process.

    ``pretrained`` is the address of the server, as `ServedModel` takes it, ``tokenizer`` that of
    its model, and ``max_gen_toks`` how long a generation is whose task names no number. ``local``
    is what lm-eval gives every model. Raises RobustokError where the server has another tokenizer.
    """

    def __init__(
        self,
        pretrained: str,
        tokenizer: str | None = None,
        scheme: str = "canonical",
        draws: int = 1,
        seed: int = 0,
        draw: int | None = None,
        max_gen_toks: int = 256,
        **local: object,
    ) -> None:
        super().__init__()
        if tokenizer is None:
            raise RobustokError(
                "a server does not give its tokenizer: add tokenizer=FOLDER to --model_args"
            )
        if others := sorted({*local} - {"batch_size", "max_batch_size", "device"}):
            raise RobustokError(f"a model behind a server has no argument '{others[0]}'")
        self.served = ServedModel(pretrained)
        self.tokenizer = load_tokenizer(tokenizer)
        self.vocab = Vocabulary.load(self.tokenizer)
        self.served.check_vocabulary(self.vocab)
        self.max_length = self.served.max_length or sys.maxsize
        self.max_gen_toks = int(max_gen_toks)
        self.draw_with(scheme, draws, seed, draw)

    @property
    def eot_token_id(self) -> int:
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self) -> int:
        start = self.tokenizer.bos_token_id
        return self.eot_token_id if start is None else start

    @property
    def tokenizer_name(self) -> str:
        return self.tokenizer.name_or_path

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: object
    ) -> list[int]:
        if add_special_tokens is None:  # as in lm-eval, no second start token
            add_special_tokens = not string.startswith(self.tokenizer.decode(self.prefix_token_id))
        return self.tokenizer.encode(string, add_special_tokens=add_special_tokens)

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        return self.tokenizer.apply_chat_template(
            chat_history,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )

    def _loglikelihood_tokens(
        self, requests: Any, disable_tqdm: bool = False, **local: object
    ) -> list[tuple[float, bool]]:
        pairs = [self._cut(before, after) for _, before, after in requests]
        with _bar("Running loglikelihood requests", disable_tqdm) as progress:
            answers = self.served.continuations(pairs, progress)
        for (strings, *_), answer in zip(requests, answers, strict=True):
            if strings is not None:
                self.cache_hook.add_partial("loglikelihood", strings, answer)
        return self._checked(requests, answers)

    def _cut(self, before: list[int], after: list[int]) -> tuple[list[int], list[int]]:
        """As in lm-eval, what is too long loses the beginning of its context."""
        excess = len(before) + len(after) - self.max_length
        if excess >= len(before):
            name = self._name_of((None, before, after))
            raise RobustokError(f"{name} is longer than the {self.max_length} tokens of the server")
        return before[max(excess, 0) :], after

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        chunks, signs, numbers = [], [], []
        for number, request in enumerate(requests):
            for before, after in self._windows(request.args[0]):
                # What comes after a longer context is the loss of both less that of the context.
                for sign, ids in ((-1, before + after), (1, before)):
                    if len(ids) > 1:
                        chunks.append(np.asarray(ids))
                        signs.append(sign)
                        numbers.append(number)
        with _bar("Running loglikelihood_rolling requests", disable_tqdm) as progress:
            losses = self.served.losses(chunks, progress)
        sums = np.bincount(numbers, losses * signs, minlength=len(requests)).tolist()
        names = [(None, self.tok_encode(request.args[0]), []) for request in requests]
        self._checked(names, [(value, False) for value in sums])
        return sums

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        prompts: list[tuple[list[int], int, JsonObject]] = []
        added = self.tokenizer.get_added_vocab()
        for request in requests:
            context, given = request.args
            settings = dict(given)
            numbers = [settings.pop(name) for name in _NEW_TOKENS if name in settings]
            new_tokens = int(numbers[0]) if numbers else self.max_gen_toks
            if settings.pop("num_beams", 1) != 1:
                raise RobustokError(
                    "the task asks for several beams, and a server writes one: give "
                    "--gen_kwargs num_beams=1, or evaluate the model in this process"
                )
            is_sampled = settings.pop("do_sample", settings.get("temperature", 0) > 0)
            settings["temperature"] = settings.get("temperature", 1) if is_sampled else 0
            until = settings.pop("until", [])
            stop = [until] if isinstance(until, str) else until
            ids, room = self._draw(self.tok_encode(context), context), self.max_length - new_tokens
            if room < 1:
                raise RobustokError(
                    f"the task writes {new_tokens} tokens, and the server takes "
                    f"{self.max_length}: serve the model with more, or give a lower max_gen_toks"
                )
            if len(ids) > room:
                _log.warning("a context of %d tokens is cut to its last %d", len(ids), room)
            fields: JsonObject = {**settings, "stop": stop, "seed": self.seed}
            # A server looks for texts where it has left out special tokens, such as <|im_end|>.
            fields["stop_token_ids"] = [added[text] for text in stop if text in added]
            prompts.append((ids[-room:], new_tokens, fields))
        with _bar("Running generate_until requests", disable_tqdm) as progress:
            texts = self.served.texts(prompts, progress)
        for request, text in zip(requests, texts, strict=True):
            self.cache_hook.add_partial("generate_until", request.args, text)
        return texts


@contextmanager
def _bar(name: str, is_off: bool) -> Iterator[Progress]:
    """A bar as lm-eval's."""
    with tqdm(desc=name, disable=is_off) as shown:

        def progress(done: int, total: int) -> None:
            shown.total = total
            shown.update(done - shown.n)

        yield progress


def _document(request: Any) -> tuple[str, int] | None:
    """Which document of which task a request is about; None where it does not say."""
    name, number = request.task_name, request.doc_id
    return None if name is None or number is None else (name, number)


@contextmanager
def draw_by_draw(keep: bool = False) -> Iterator[list[JsonObject]]:
    """While inside, `lm_eval.simple_evaluate` asks a `robustok` model draw after draw.

    A model is loaded once, whatever the schemes of the calls. With ``keep``, every result goes into
    the list that it yields, with its samples.
    """
    harness: Any = lm_eval
    once = harness.simple_evaluate
    results: list[JsonObject] = []
    loaded: dict[str, Drawing] = {}

    def evaluated(*args: object, **options: object) -> Any:
        logging = {"log_samples": True} if keep else {}
        result = evaluate_draws(once, *args, loaded=loaded, **(options | logging))
        if keep and result is not None:  # None: not the main process
            results.append({**result, _TRACKER: options.get("evaluation_tracker")})
            if not options.get("log_samples", True):
                del result["samples"]
        return result

    harness.simple_evaluate = evaluated
    try:
        yield results
    finally:
        harness.simple_evaluate = once


def compared(first: JsonFields, other: JsonFields) -> Iterator[tuple[str, str, Difference]]:
    """The paired differences of two results: task, metric, and the second minus the first.

    Metrics from 0 to 1 that are means over documents, of the documents that both results have, each
    with the mean of its draws.
    """
    for task, metrics in first["results"].items():
        for name in metrics:
            metric, comma, filtered = name.partition(",")
            means = [_document_means(task, metric, filtered, [run]) for run in (first, other)]
            if comma and all(
                each and 0 <= min(each.values()) <= max(each.values()) <= 1 for each in means
            ):
                yield task, metric, difference(*({"answers": {0: each}} for each in means))


def comparisons(
    schemes: Sequence[str], results: Sequence[JsonFields]
) -> list[tuple[str, str, str, Difference]]:
    """The paired differences of each scheme from the first: scheme, task, metric, difference.

    Where lm-eval writes results, they are written beside those of the first scheme, as JSON.
    """
    rows = [
        (scheme, *row)
        for scheme, other in zip(schemes[1:], results[1:], strict=True)
        for row in compared(results[0], other)
    ]
    tracker = results[0].get(_TRACKER)
    if tracker is not None and tracker.output_path:
        path = Path(tracker.output_path)
        # As lm-eval names its own file.
        folder = (
            path.parent
            if path.suffix == ".json"
            else (path / tracker.general_config_tracker.model_name_sanitized)
        )
        stem = f"{path.stem}_comparison" if path.suffix == ".json" else "comparison"
        names = ("scheme", "task", "metric")
        numbers = ("before", "after", "mean", "low", "high", "p", "n")
        listed = [
            dict(zip(names, row, strict=False))
            | {"reference": schemes[0]}
            | {name: getattr(row[3], name) for name in numbers}
            for row in rows
        ]
        write_json(folder / f"{stem}_{tracker.date_id}.json", listed)
    return rows


def evaluate_draws(
    once: Any,
    model: Any = "robustok",
    model_args: Any = None,
    *,
    loaded: dict[str, Drawing],
    **options: Any,
) -> Any:
    """Run lm-eval once for each draw and average: every metric, with its error and its spread.

    A model with ``draw`` is asked for that draw alone. ``loaded`` has the models of earlier calls.

    The standard error of a mean over documents treats them as the sample, each with the mean of its
    draws; a group pools the errors of its tasks, as lm-eval does. Of another aggregation, such as a
    perplexity, it is the mean of the draws' errors, an upper bound. The spread is the standard
    deviation between draws, under ``METRIC_spread``. Samples carry their draw.
    """
    if model != "robustok":
        return once(model=model, model_args=model_args, **options)
    is_text = isinstance(model_args, str)
    given = simple_parse_args_string(model_args) if is_text else dict(model_args or {})
    lm = _loaded(given, options, loaded)
    once = partial(once, model=lm, model_args=given)  # for lm-eval's records
    if lm.canonical:
        return once(**options)
    runs = []
    logged = options.pop("log_samples", True)
    cache = options.pop("use_cache", None)
    tracker = options.pop("evaluation_tracker", None)
    numbers = range(lm.draws) if lm.draw is None else [lm.draw]
    for number in numbers:
        lm.draw = number
        # One file for each draw, so that no draw reads the answers of another.
        slug = "".join(c if c.isalnum() or c in ".=-" else "_" for c in lm.identity)
        file = f"{cache}.{slug}" if cache else None
        first = None if runs else tracker
        runs.append(once(use_cache=file, log_samples=True, evaluation_tracker=first, **options))
    if runs[0] is None:  # not the main process
        return None
    return merged(runs, numbers, keep_samples=logged)


def _loaded(given: JsonFields, options: JsonFields, loaded: dict[str, Drawing]) -> Any:
    """The model of these arguments, which draws as they say."""
    loading = {k: options[k] for k in ("batch_size", "max_batch_size", "device") if options.get(k)}
    arguments = {name: value for name, value in given.items() if name not in _DRAWING}
    key = repr(sorted({**arguments, **loading}.items()))
    if key not in loaded:
        kind: Any = ServedLM if is_served(arguments.get("pretrained")) else RobustokLM
        loaded[key] = kind.create_from_arg_obj(arguments, loading)
    lm: Any = loaded[key]
    lm.draw_with(**{name: given[name] for name in _DRAWING if name in given})
    return lm


def merged(
    runs: Sequence[JsonFields], numbers: Sequence[int], *, keep_samples: bool = True
) -> JsonObject:
    """The results of one run a draw as one; ``numbers`` are those of the draws."""
    result = dict(runs[0])
    for part in [name for name in ("results", "groups") if name in result]:
        result[part] = {
            name: _task(name, [run[part][name] for run in runs], runs) for name in result[part]
        }
        for name, row in result[part].items():
            tasks = _tasks_of(name, result.get("group_subtasks", {}))
            if tasks != [name]:
                row |= _pooled_errors(row, tasks, result)
    result["draws"] = len(runs)
    samples = {
        task: [
            {**sample, "draw": draw}
            for draw, run in zip(numbers, runs, strict=True)
            for sample in run["samples"][task]
        ]
        for task in runs[0].get("samples", {})
    }
    result.pop("samples", None)
    return result | ({"samples": samples} if keep_samples else {})


def _task(task: str, rows: Sequence[JsonFields], runs: Sequence[JsonFields]) -> JsonObject:
    metrics: JsonObject = {}
    for name, value in rows[0].items():
        metric, comma, filtered = name.partition(",")
        numbers = [row[name] for row in rows]
        plain = all(isinstance(number, int | float) for number in numbers)
        if metric.endswith("_stderr"):
            each = _per_document(task, metric.removesuffix("_stderr"), filtered, runs)
            mean = float(np.mean(numbers)) if plain else value
            metrics[name] = mean if each is None else each
        elif not comma or not plain:
            metrics[name] = value
        else:
            metrics[name] = float(np.mean(numbers))
            spread = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else 0.0
            metrics[f"{metric}_spread,{filtered}"] = spread
    return metrics


def _tasks_of(name: str, groups: JsonFields) -> list[str]:
    """The tasks of a group, of the groups in it too; of a task itself."""
    members = groups.get(name)
    return [task for one in members for task in _tasks_of(one, groups)] if members else [name]


def _pooled_errors(group: JsonFields, tasks: Sequence[str], result: JsonFields) -> JsonObject:
    """The standard errors of a group's metrics from those of its tasks in a merged ``result``."""
    pooled: JsonObject = {}
    for name, value in group.items():
        metric, _, filtered = name.partition(",")
        error = f"{metric}_stderr,{filtered}"
        rows = {task: result["results"][task] for task in tasks if name in result["results"][task]}
        errors = [row.get(error) for row in rows.values()]
        if error not in group or not all(isinstance(each, int | float) for each in errors):
            continue
        sizes = [result["n-samples"][task]["effective"] for task in rows]
        weighted = aggregate_subtask_metrics([row[name] for row in rows.values()], sizes)
        if np.isclose(weighted, value):
            pooled[error] = float(pooled_sample_stderr(errors, sizes))
        else:  # each task counts the same, whatever its size
            pooled[error] = float(np.linalg.norm(errors) / len(errors))
    return pooled


def _per_document(
    task: str, metric: str, filtered: str, runs: Sequence[JsonFields]
) -> float | None:
    """The standard error of a mean over documents, each the mean over its draws."""
    means = np.array([*_document_means(task, metric, filtered, runs).values()])
    return float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else None


def _document_means(
    task: str, metric: str, filtered: str, runs: Sequence[JsonFields]
) -> dict[Any, float]:
    """The mean over the draws of every document; empty where the metric is not their mean.

    Of a perplexity, for example, a sample has the log-likelihood.
    """
    values: dict[Any, list[float]] = {}
    for run in runs:
        for sample in run.get("samples", {}).get(task, ()):
            if sample.get("filter", filtered) != filtered:  # the same document, read another way
                continue
            if not isinstance(sample.get(metric), int | float):
                return {}
            values.setdefault(sample["doc_id"], []).append(float(sample[metric]))
    means = {document: float(np.mean(each)) for document, each in values.items()}
    if not means:
        return {}
    reported = [run["results"].get(task, {}).get(f"{metric},{filtered}") for run in runs]
    numbers = all(isinstance(each, int | float) for each in reported)
    is_mean = numbers and np.isclose(np.mean(reported), np.mean([*means.values()]))
    return means if is_mean else {}
