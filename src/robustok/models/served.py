"""A causal language model behind an HTTP server of vLLM, asked by token ids.

All requests are `POST /v1/completions` with prompts as lists of ids, in batches and several at
once. An option of several tokens is a chain: after the question the first token is wanted, after
both the second, and so on; prompts that several options share are asked once, which can use the
server's prefix cache. Losses of texts are read from the log-probabilities of the prompt. The
server's own tokenizer is only compared with a vocabulary.

The fields `logprob_token_ids`, `prompt_logprobs`, `return_token_ids` and
`return_tokens_as_token_ids` are vLLM's; tried with 0.32. A server without them ends in an error
that names the missing part.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.errors import RobustokError
from robustok.models.scored import Request, ScoredModel, Scores
from robustok.runtime.display import Progress, no_progress
from robustok.runtime.packages import require
from robustok.tokenizer.vocabulary import PROBES

if TYPE_CHECKING:
    from robustok.tokenizer.vocabulary import Vocabulary

KEY_VARIABLE = "ROBUSTOK_API_KEY"  # environment variable of the key that the server asks for
_BUSY = (429, 502, 503, 504)
_LEAST_LOG_PROB = -9999.0  # vLLM gives no smaller one, since JSON has no infinity
_MOST_IDS = 128  # that vLLM takes in `logprob_token_ids`
_LONGEST_ERROR = 300  # characters of a server's message
# The model's own generation_config.json may ask for a penalty.
_GREEDY = {"logprobs": 1, "temperature": 0, "repetition_penalty": 1}

Prompt = tuple[int, ...]
_Next = dict[int, float]  # log-probabilities by id, that of the most probable one among them


class ServedModel(ScoredModel):
    """A model that vLLM serves, for scoring, evaluation and attacks.

    >>> model = ServedModel("http://127.0.0.1:8000/v1")  # doctest: +SKIP
    >>> model.name, model.max_length  # doctest: +SKIP
    ('HuggingFaceTB/SmolLM2-135M', 8192)

    Args:
        url: address of the server with its path, as ``http://127.0.0.1:8000/v1``. A name after
            ``#`` chooses one of several models or adapters, as ``…/v1#my-adapter``.
        concurrency: number of requests at once, at least 1.
        batch: greatest number of prompts of one request, at least 1.
        timeout: seconds that a single request may take.
        retries: how often a request is sent again after a lost connection or a busy server: at
            once, then after 1, 2, 4, … seconds each, or after what the server asks for.

    The key that the server asks for is read from the environment variable ``ROBUSTOK_API_KEY``.

    Attributes:
        name: the name under which the server has the model.
        root: what the server loaded, by its own words.
        max_length: longest input with one more token, or None where the server names none.
        n_requests: number of HTTP requests answered.

    Raises RobustokError where no server answers, and where it does not have the model.
    """

    precision = "served"  # a server does not say the type of the weights

    def __init__(
        self,
        url: str,
        *,
        concurrency: int = 8,
        batch: int = 64,
        timeout: float = 600.0,
        retries: int = 6,
    ) -> None:
        require("urllib3")
        import urllib3

        address, _, name = url.partition("#")
        self.url = address.rstrip("/")
        self.concurrency, self.batch = concurrency, batch
        self.n_requests = 0
        self._compared: weakref.WeakSet[Vocabulary] = weakref.WeakSet()
        retry = urllib3.Retry(
            total=retries,
            backoff_factor=0.5,
            status_forcelist=_BUSY,
            allowed_methods=None,
            raise_on_status=False,
        )
        self._pool = urllib3.PoolManager(
            maxsize=concurrency, retries=retry, timeout=urllib3.Timeout(connect=10, read=timeout)
        )
        models = {model["id"]: model for model in self._call("GET", "/models").get("data") or ()}
        if not models or (name and name not in models):
            raise RobustokError(
                f"the server {self.url} has no model '{name}': it has {', '.join(models) or 'none'}"
            )
        if not name and len({model.get("root") for model in models.values()}) > 1:
            raise RobustokError(
                f"the server {self.url} has several models: choose one, as {self.url}#"
                f"{next(iter(models))}"
            )
        self.name = name or next(iter(models))
        described = models[self.name]
        self.root = str(described.get("root") or self.name)
        parent = models.get(described.get("parent") or "", {})  # an adapter has its base model's
        self.max_length: int | None = described.get("max_model_len", parent.get("max_model_len"))

    def fingerprint(self) -> str:
        """What the server says of the model, as one line: its name, source and longest input."""
        return f"{self.name} from {self.root}, {self.max_length} tokens"

    def __repr__(self) -> str:
        return f"ServedModel({self.url}#{self.name})"

    def check_vocabulary(self, vocab: Vocabulary) -> None:
        """Raise RobustokError where the server's tokenizer gives other ids than a vocabulary.

        Args:
            vocab: the vocabulary of the ids that will be scored.

        Both encode a few texts with spaces, line ends, digits and other scripts, once for each
        vocabulary. A server without `/tokenize` cannot be compared, which is an error, too.
        """
        if vocab in self._compared:
            return
        for text in PROBES:
            body = {"model": self.name, "prompt": text, "add_special_tokens": False}
            served = self._call("POST", "/tokenize", body, root=True).get("tokens")
            ids = vocab.encode(text).tolist()
            if served != ids:
                raise RobustokError(
                    f"the server's tokenizer gives {served} for {text!r} and the vocabulary {ids}: "
                    "give the tokenizer of the served model"
                )
        self._compared.add(vocab)

    def _next_log_probs(
        self, groups: Sequence[Mapping[Prompt, Iterable[int]]], progress: Progress = no_progress
    ) -> list[dict[Prompt, _Next]]:
        """For each group of prompts with ids: what the server says of these ids after each prompt.

        The prompts of a group are asked together, as far as their ids fit into one request.
        """
        tasks = [
            (number, *batch)
            for number, group in enumerate(groups)
            for batch in _batches(group, self.batch)
        ]

        def ask(task: tuple[int, Sequence[Prompt], Sequence[int]]) -> list[_Next]:
            _, prompts, wanted = task
            choices = self._complete(prompts, 1, _GREEDY | {"logprob_token_ids": wanted})
            return [_next_of(choice, wanted) for choice in choices]

        results: list[dict[Prompt, _Next]] = [{} for _ in groups]
        for done, ((number, prompts, _), answers) in enumerate(
            zip(tasks, self._all(ask, tasks), strict=True), 1
        ):
            for prompt, answer in zip(prompts, answers, strict=True):
                results[number].setdefault(prompt, {}).update(answer)
            progress(done, len(tasks))
        return results

    def start_ids(self) -> list[int]:
        raise RobustokError(
            "a server does not say which token begins a text, so whole sentences cannot be scored: "
            "give the start token"
        )

    def score_many(self, requests: Sequence[Request], **local: Any) -> list[Scores]:
        parts = []
        for request in requests:
            prefix = () if request.prefix is None else np.asarray(request.prefix).tolist()
            starts = [(*prefix, *question.tolist()) for question in request.questions]
            parts.append((starts, [np.asarray(option).tolist() for option in request.options]))
        groups = [_wanted_after(starts, options) for starts, options in parts]
        results = []
        for (starts, options), after in zip(parts, self._next_log_probs(groups), strict=True):
            values = [
                [sum(after[*start, *o[:j]][token] for j, token in enumerate(o)) for o in options]
                for start in starts
            ]
            log_probs = np.array(values, np.float64).reshape(len(starts), len(options))
            tokens_naive = sum(len(start) + len(option) for start in starts for option in options)
            results.append(Scores(log_probs, sum(map(len, after)), tokens_naive, "served"))
        return results

    def continuations(
        self,
        pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
        progress: Progress = no_progress,
    ) -> list[tuple[float, bool]]:
        """The log-probability of each continuation, and whether no id was more probable.

        Args:
            pairs: the ids of a context, none empty, and those of its continuation.
            progress: gets the requests done and all.
        """
        by_context: dict[Prompt, list[Sequence[int]]] = {}
        for before, after in pairs:
            by_context.setdefault(tuple(before), []).append(after)
        groups = [_wanted_after([start], options) for start, options in by_context.items()]
        scored = self._next_log_probs(groups, progress)
        answers = dict(zip(by_context, scored, strict=True))
        results = []
        for before, after in pairs:
            log_prob, is_greedy = 0.0, True
            for j, token in enumerate(after):
                known = answers[*before,][*before, *after[:j]]
                log_prob += known[token]
                is_greedy &= known[token] == max(known.values())
            results.append((log_prob, is_greedy))
        return results

    def losses(self, chunks: Sequence[np.ndarray], progress: Progress, **local: Any) -> np.ndarray:
        def ask(chunk: np.ndarray) -> float:
            *prompt, last = chunk.tolist()  # a prompt of max_length ids would leave no room
            fields = {"prompt_logprobs": 0, "logprob_token_ids": [last]}
            (choice,) = self._complete([prompt], 1, _GREEDY | fields)
            rows = zip(_part(choice, "prompt_logprobs")[1:], prompt[1:], strict=True)
            inside = sum(_log_prob(row[str(token)]["logprob"]) for row, token in rows)
            return -inside - _next_of(choice, [last])[last]

        losses = np.zeros(len(chunks))
        for number, loss in enumerate(self._all(ask, chunks)):
            losses[number] = loss
            progress(number + 1, len(chunks))
        return losses

    def continuation(self, prompt: Sequence[int], max_new_tokens: int) -> list[int]:
        fields = _GREEDY | {"return_token_ids": True}
        (choice,) = self._complete([prompt], max_new_tokens, fields)
        return list(_part(choice, "token_ids"))

    def texts(
        self,
        prompts: Sequence[tuple[Sequence[int], int, Mapping[str, object]]],
        progress: Progress = no_progress,
    ) -> list[str]:
        """The text that the model writes after each prompt.

        Args:
            prompts: ids, the most new tokens, and further fields of the request, such as ``stop``.
            progress: gets the prompts done and all.
        """

        def ask(prompt: tuple[Sequence[int], int, Mapping[str, object]]) -> str:
            ids, new_tokens, fields = prompt
            (choice,) = self._complete([ids], new_tokens, fields)
            return _part(choice, "text")

        texts = []
        for text in self._all(ask, prompts):
            texts.append(text)
            progress(len(texts), len(prompts))
        return texts

    def _all(self, ask: Any, tasks: Sequence[Any]) -> Iterator[Any]:
        """The answers to all tasks in their order, several requests at once."""
        with ThreadPoolExecutor(self.concurrency) as pool:
            yield from pool.map(ask, tasks)

    def _complete(
        self, prompts: Sequence[Sequence[int]], new_tokens: int, fields: Mapping[str, object]
    ) -> list[Any]:
        """The choices of one completion request, in the order of its prompts."""
        body = {
            "model": self.name,
            "prompt": [[int(token) for token in prompt] for prompt in prompts],
            "max_tokens": new_tokens,
            "return_tokens_as_token_ids": True,
            **fields,
        }
        choices = self._call("POST", "/completions", body).get("choices") or []
        if len(choices) != len(prompts):
            raise RobustokError(
                f"the server {self.url} gave {len(choices)} answers to {len(prompts)} prompts: "
                "give one that serves vLLM's /v1/completions"
            )
        return sorted(choices, key=lambda choice: choice["index"])

    def _call(self, method: str, path: str, body: object = None, *, root: bool = False) -> Any:
        """The JSON of one answer of the server; ``root``: the path is not below `/v1`."""
        import urllib3

        address = (self.url.removesuffix("/v1") if root else self.url) + path
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY_VARIABLE):
            headers["Authorization"] = f"Bearer {key}"
        data = None if body is None else json.dumps(body).encode()
        try:
            response = self._pool.request(method, address, body=data, headers=headers)
        except (urllib3.exceptions.HTTPError, UnicodeError) as error:
            raise RobustokError(
                f"no answer from {address} ({type(error).__name__}): start the server, and run the "
                "same command again"
            ) from error
        if response.status != 200:
            advice = f"; set {KEY_VARIABLE}" if response.status in (401, 403) else ""
            if response.status == 404 and not self.url.endswith("/v1"):
                advice = "; give the address of vLLM's /v1"
            reason = _message_of(response.data)
            raise RobustokError(f"{address} answered {response.status}: {reason}{advice}")
        self.n_requests += 1
        try:
            answer = json.loads(response.data)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise RobustokError(f"{address} gave no JSON object: give the address of vLLM's /v1")
        return answer


def _message_of(data: bytes) -> str:
    """What a server says of an error, on one line."""
    text = data.decode(errors="replace")
    try:
        answer = json.loads(text)
        inner = answer.get("error", answer)
        text = str(inner.get("message", inner) if isinstance(inner, dict) else inner)
    except (ValueError, AttributeError):
        pass
    return " ".join(text.split())[:_LONGEST_ERROR]


def _part(choice: Any, name: str) -> Any:
    """A part of an answer, which another server may not give."""
    value = choice.get(name) if isinstance(choice, dict) else None
    if value is None:
        raise RobustokError(
            f"the server's answer has no {name}: log-probabilities of ids need vLLM 0.32 or later"
        )
    return value


def _wanted_after(
    starts: Iterable[Prompt], options: Iterable[Sequence[int]]
) -> dict[Prompt, dict[int, None]]:
    """The prompts that options after starts are scored by, and the ids that come next."""
    wanted: dict[Prompt, dict[int, None]] = {}
    for start in starts:
        for option in options:
            for j, token in enumerate(option):
                wanted.setdefault((*start, *option[:j]), {})[token] = None
    return wanted


def _batches(
    group: Mapping[Prompt, Iterable[int]], size: int
) -> Iterator[tuple[list[Prompt], list[int]]]:
    """Prompts in order with the ids wanted after any of them, as many as one request may have."""
    prompts: list[Prompt] = []
    wanted: set[int] = set()
    for prompt, all_ids in group.items():
        ids = sorted(all_ids)
        for part in (ids[i : i + _MOST_IDS] for i in range(0, len(ids), _MOST_IDS)):
            if prompts and (len(prompts) == size or len(wanted.union(part)) > _MOST_IDS):
                yield prompts, sorted(wanted)
                prompts, wanted = [], set()
            prompts.append(prompt)
            wanted.update(part)
    if prompts:
        yield prompts, sorted(wanted)


def _next_of(choice: Any, wanted: Sequence[int]) -> _Next:
    """The log-probabilities of the wanted ids, and of the most probable one, after a prompt."""
    top = _part(_part(choice, "logprobs"), "top_logprobs")[0]
    by_id = {int(token.rpartition(":")[2]): _log_prob(value) for token, value in top.items()}
    missing = [token for token in wanted if token not in by_id]
    if missing:
        raise RobustokError(
            f"the server gave no log-probability of token {missing[0]}: it needs the field "
            "logprob_token_ids of vLLM 0.32 or later"
        )
    return by_id


def _log_prob(value: Any) -> float:
    """A log-probability, minus infinity where the server has its least one; NaN stays."""
    number = float("nan") if value is None else float(value)
    return float("-inf") if number <= _LEAST_LOG_PROB else number
