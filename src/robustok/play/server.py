"""HTTP server of the playground's page and its endpoints.

It listens on the loopback interface unless another host is given. No web page elsewhere can ask
through the reader's browser: a request needs the Host of this machine or that which was given, and
a question is JSON by its content type, from the page's own origin. Every value of it is bounded.

The answers are plain values: drawn tokens, histograms, probabilities, attacks.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import uvicorn
from anyio import CapacityLimiter, to_thread
from pydantic import Field, TypeAdapter, ValidationError, with_config
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

from robustok.errors import RobustokError, check_choice
from robustok.runtime.display import power_text, visible
from robustok.runtime.files import JsonFields, JsonObject
from robustok.samplers import sampler
from robustok.samplers.parameters import Number
from robustok.samplers.spec import schemes
from robustok.samplers.strength import distance_shares

if TYPE_CHECKING:
    from robustok.samplers.base import Sampler
    from robustok.tokenizer.vocabulary import Vocabulary

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
EVERYWHERE = "0.0.0.0"  # all interfaces, as in a container, whose names it does not know
LONGEST = 200  # characters of a text
OPTIONS = 8  # of a question, at most
STEPS = 10  # of an attack
RARE = 5e-4  # a share below this is no bar
_BODY = 20_000  # bytes of a request, at most
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src "
    "'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
Text = Annotated[str, Field(min_length=1, max_length=LONGEST)]


@with_config({"strict": True, "allow_inf_nan": False})
@dataclass
class Question:
    """The JSON object of a request."""

    text: Text
    tokenizer: str | None = None  # the first one by default
    scheme: str = "uniform"
    strength: float | None = None  # of the page's slider; the example of the scheme by default
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    options: Annotated[list[Text], Field(max_length=OPTIONS)] = field(default_factory=list)


_QUESTION = TypeAdapter(Question)
Answer = Callable[[Question], Any]


def application(
    vocabularies: Mapping[str, Vocabulary],
    models: JsonFields | None = None,
    *,
    host: str = LOOPBACK[0],
) -> Starlette:
    """The playground as an ASGI application.

    >>> app = application({"toy": vocab}, {"toy": model})
    >>> [route.path for route in app.routes]
    ['/', '/api/about', '/api/draw', '/api/score', '/api/attack']

    Args:
        vocabularies: the vocabularies to offer, by name.
        models: causal language models, each by the name of its vocabulary; by default none.
        host: name or address that readers may ask for beside those of this machine; any name where
            it is ``0.0.0.0``.
    """
    models = models or {}
    first = next(iter(vocabularies))
    offered = offered_schemes(vocabularies)
    page = files("robustok.play").joinpath("page.html").read_text(encoding="utf-8")
    about: JsonObject = {
        "tokenizers": list(vocabularies),
        "models": list(models),
        "schemes": list(offered.values()),
        "longest": LONGEST,
    }

    def vocabulary(question: Question) -> Vocabulary:
        name = question.tokenizer or first
        return vocabularies[check_choice("tokenizer", name, vocabularies)]

    def model(question: Question) -> tuple[Any, Vocabulary]:
        name = question.tokenizer or first
        return models[check_choice("model", name, models)], vocabularies[name]

    def draw(question: Question) -> Any:
        spec = _spec_of(question, offered)
        return picture(vocabulary(question), question.text, spec, seed=question.seed)

    def score(question: Question) -> Any:
        spec, options = _spec_of(question, offered), _options_of(question)
        return probabilities(*model(question), question.text, options, spec, seed=question.seed)

    def attack(question: Question) -> Any:
        return attack_steps(*model(question), question.text, _options_of(question))

    draws, one = CapacityLimiter(2), CapacityLimiter(1)  # models answer one question at a time
    routes = [
        Route("/", lambda _: HTMLResponse(page, headers=_HEADERS)),
        Route("/api/about", lambda _: _reply(about)),
        _post("/api/draw", draw, draws),
    ]
    if models:
        routes += [_post("/api/score", score, one), _post("/api/attack", attack, one)]
    hosts = ["*"] if host == EVERYWHERE else [*LOOPBACK, host]
    check = Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    return Starlette(routes=routes, middleware=[check])


def offered_schemes(vocabularies: Mapping[str, Vocabulary]) -> dict[str, JsonObject]:
    """Every scheme that fits one of the vocabularies by its name, random ones first.

    Each has its ``name``, a spec as ``example``, and where it has a strength that is a number, the
    name of this parameter with the ``least`` and the ``most`` of the page's slider.
    """
    offered = {}
    for scheme in sorted(schemes().values(), key=lambda scheme: scheme.deterministic):
        if scheme.needs and not any(map(scheme.needs.is_met, vocabularies.values())):
            continue
        entry: JsonObject = {"name": scheme.name, "example": scheme.example, "strength": None}
        kind = scheme.parameters.get(scheme.strength or "")
        if isinstance(kind, Number):
            # Of alpha, which has no upper end, three times what is searched first.
            most = kind.search.high * (3 if kind.search.high == 1 < kind.search.highest else 1)
            entry |= {"strength": scheme.strength, "least": kind.search.low, "most": most}
        offered[scheme.name] = entry
    return offered


def _reply(value: object, status: int = 200) -> JSONResponse:
    return JSONResponse(value, status, headers=_HEADERS)


def _post(path: str, answer: Answer, limiter: CapacityLimiter) -> Route:
    """Answer a JSON request; an error is returned as one line."""

    async def endpoint(request: Request) -> JSONResponse:
        kinds = request.headers.getlist("content-type")  # a name can occur twice
        if {kind.partition(";")[0].strip().lower() for kind in kinds} != {"application/json"}:
            return _reply({"error": "ask with Content-Type: application/json"}, 403)
        own = f"http://{request.headers.get('host', '')}"
        if any(origin != own for origin in request.headers.getlist("origin")):  # browsers send it
            return _reply({"error": "only the playground's own page may ask"}, 403)
        try:
            question = read_question(await _body(request))
            async with limiter:
                # Who waited in line and left is not answered.
                if await request.is_disconnected():
                    return _reply({"error": "too late"}, 408)
                # Kernels and forward passes cannot be interrupted: a stopping server abandons them.
                return _reply(await to_thread.run_sync(answer, question, abandon_on_cancel=True))
        except RobustokError as error:
            return _reply({"error": str(error)}, 400)
        except ClientDisconnect:
            return _reply({"error": "too late"}, 408)
        except asyncio.CancelledError:
            return _reply({"error": "the server was stopped"}, 503)

    return Route(path, endpoint, methods=["POST"])


async def _body(request: Request) -> bytes:
    # Counted as it comes: a request in chunks does not say its length.
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _BODY:
            raise RobustokError("the question is too long")
    return body


def read_question(body: bytes) -> Question:
    """The question of a request; raises RobustokError for anything else."""
    try:
        return _QUESTION.validate_json(body)
    except ValidationError as invalid:
        problem = invalid.errors(include_url=False, include_input=False)[0]
        name = "".join(f"{part} of " for part in reversed(problem["loc"]))
        raise RobustokError(f"{name}the question: {problem['msg']}") from None


def _options_of(question: Question) -> list[str]:
    if len(question.options) < 2:
        raise RobustokError(f"give 2 to {OPTIONS} options, the right one first")
    return question.options


def _spec_of(question: Question, offered: Mapping[str, JsonObject]) -> str:
    """The spec of a question: an offered scheme, at a strength of the page's slider."""
    entry = offered[check_choice("scheme", question.scheme, offered)]
    value = question.strength
    if entry["strength"] is None or value is None:
        return entry["example"]
    if not entry["least"] <= value <= entry["most"]:
        least, most = entry["least"], entry["most"]
        raise RobustokError(f"{entry['strength']} is a number from {least:g} to {most:g} here")
    return f"{entry['name']}({entry['strength']}={value})"


# What uvicorn serves the playground with.
SERVER: JsonObject = {
    "log_level": "warning",
    "ws": "none",
    "lifespan": "off",
    "timeout_graceful_shutdown": 1,
}


def serve(app: Starlette, *, port: int, host: str = LOOPBACK[0]) -> None:
    """Serve the playground until interrupted; KeyboardInterrupt ends it.

    Args:
        app: the playground's application.
        port: TCP port, from 0 to 65,535.
        host: address or name of this machine to listen at; ``0.0.0.0`` for all of them.

    Raises RobustokError where the port is taken, and for a host that is not of this machine.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise RobustokError(
                f"port {port} of {host} cannot be used ({error.strerror}): give another one"
            ) from None
    uvicorn.run(app, host=host, port=port, **SERVER)


ROWS, SAMPLES = 6, 1_000  # draws that are shown, and draws that are counted


def picture(vocab: Vocabulary, text: str, spec: str, *, seed: int) -> JsonObject:
    """Draws of a scheme for a text, how many tokenizations it has, and how far they lie.

    ``bars`` holds (distance, share of all tokenizations, share of the draws), each where one of
    the two can be seen.
    """
    draw = sampler(spec, vocab)
    canonical, lattice = vocab.encode(text), vocab.lattice(text)
    total = lattice.count()
    rows, microseconds = _draws(draw, text, seed)
    return {
        "scheme": draw.spec,
        "count": f"{total:,}" if total < 10**15 else power_text(total),
        "canonical": _token_texts(vocab, canonical),
        "rows": [_token_texts(vocab, rows[i]) for i in range(ROWS)],
        "length": round(sum(map(len, rows)) / SAMPLES / max(len(canonical), 1), 3),
        "bars": distance_shares(lattice, rows, least=RARE),
        "microseconds": round(microseconds, 2),
    }


def _draws(draw: Sampler, text: str, seed: int) -> tuple[list[np.ndarray], float]:
    """SAMPLES draws of a text, and the microseconds of one."""
    rows = list(draw.sample_batch([text], seed=seed, draws=ROWS))  # may compile a kernel
    start, rest = time.perf_counter(), SAMPLES - ROWS
    rows += draw.sample_batch([text], seed=seed, draws=rest, epoch=1)
    return rows, 1e6 * (time.perf_counter() - start) / rest


def probabilities(
    model: Any, vocab: Vocabulary, text: str, options: Sequence[str], spec: str, *, seed: int
) -> JsonObject:
    """How probable each option is after the text, canonical and drawn: shares that add up to 1."""
    from robustok.evaluation.questions import encode_options
    from robustok.scoring import score

    draw = sampler(spec, vocab)
    rows = [vocab.encode(text), *draw.sample_batch([text], seed=seed, draws=ROWS)]
    log_probs = score(model, rows, encode_options(vocab, options)).log_probs
    return {"shares": _shares(log_probs), "rows": [_token_texts(vocab, row) for row in rows]}


def attack_steps(
    model: Any, vocab: Vocabulary, text: str, options: Sequence[str]
) -> list[JsonObject]:
    """The greedy attack on the first option, step after step until it wins or is stuck."""
    from robustok.attack import attack

    result = attack(model, vocab, text, list(options), 0, steps=STEPS, overflow="canonical", seed=0)
    steps: list[JsonObject] = []
    for step in result.moves:
        shares = _shares(np.array([step.log_probs]))[0]
        won = bool(steps) and int(np.argmax(step.log_probs)) != 0
        steps.append({"tokens": _token_texts(vocab, step.ids), "shares": shares, "won": won})
        if won:
            break
    return steps


def _token_texts(vocab: Vocabulary, ids: object) -> list[str]:
    return [visible(vocab.tokens[i]) for i in np.asarray(ids).tolist()]


def _shares(log_probs: np.ndarray) -> list[list[float]]:
    weights = np.exp(log_probs - log_probs.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True)).round(6).tolist()
