"""HTTP server of the playground's page and its three endpoints.

It listens on the loopback interface unless another host is given. No web page elsewhere can ask
through the reader's browser: a request needs the Host of this machine or that which was given, and
a question is JSON by its content type, which a browser sends to another site only where that site
allows it. Every value of a question is bounded, so that no answer takes long.

The answers are plain values: drawn tokens, histograms, probabilities, attacks.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from itertools import count
from typing import TYPE_CHECKING, Any

import h11
import numpy as np
import uvicorn
from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from robustok.analysis.splits import distance_shares
from robustok.errors import RobustokError, check_choice
from robustok.runtime.display import power_text, visible
from robustok.runtime.files import JsonFields, JsonObject
from robustok.samplers import sampler
from robustok.samplers.parameters import Number
from robustok.samplers.spec import schemes

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from robustok.samplers.base import Sampler
    from robustok.tokenizer.vocabulary import Vocabulary

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
EVERYWHERE = "0.0.0.0"  # all interfaces, as in a container, whose names it does not know
LONGEST = 200  # characters of a text
OPTIONS = 8  # of a question, at most
STEPS = 10  # of an attack
RARE = 5e-4  # a share below this is no bar
SECONDS = 2.0  # of drawing, at most; well above what any scheme of the page takes
MODEL_SECONDS = 60.0  # of an attack, at most
_CHUNK = 71  # draws between looks at the clock: ROWS + 14 * 71 = SAMPLES
_BODY = 20_000  # bytes of a request, at most
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src "
    "'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
Answer = Callable[[str, dict[str, Any]], Any]  # of a text and the whole question


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

    def vocabulary(question: JsonObject) -> tuple[str, Vocabulary]:
        name = str(question.get("tokenizer") or first)
        if name not in vocabularies:
            raise RobustokError(f"no tokenizer '{name[:60]}' here")
        return name, vocabularies[name]

    def model(question: JsonObject) -> tuple[Any, Vocabulary]:
        name, vocab = vocabulary(question)
        if name not in models:
            raise RobustokError(f"no model '{name[:60]}' here")
        return models[name], vocab

    def draw(text: str, question: JsonObject) -> Any:
        _, vocab = vocabulary(question)
        return picture(vocab, text, _spec_of(question, offered), seed=_seed_of(question))

    def score(text: str, question: JsonObject) -> Any:
        options, spec = _options_of(question), _spec_of(question, offered)
        return probabilities(*model(question), text, options, spec, seed=_seed_of(question))

    def attack(text: str, question: JsonObject) -> Any:
        return attack_steps(*model(question), text, _options_of(question))

    draws, one = CapacityLimiter(2), CapacityLimiter(1)  # models answer one question at a time
    routes = [
        Route("/", lambda _: HTMLResponse(page)),
        Route("/api/about", lambda _: JSONResponse(about)),
        _post("/api/draw", draw, draws),
    ]
    if models:
        routes += [_post("/api/score", score, one), _post("/api/attack", attack, one)]
    hosts = ["*"] if host == EVERYWHERE else [*LOOPBACK, host]
    checks = [
        Middleware(_SecurityHeaders),
        Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False),
    ]
    return Starlette(routes=routes, middleware=checks)


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


class _SecurityHeaders:
    """ASGI middleware: adds _HEADERS to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self.app(scope, receive, send_with_headers)


def _post(path: str, answer: Answer, limiter: CapacityLimiter) -> Route:
    """Answer a JSON request; an error is returned as one line."""

    async def endpoint(request: Request) -> JSONResponse:
        kinds = request.headers.getlist("content-type")  # a name can occur twice
        if {kind.partition(";")[0].strip().lower() for kind in kinds} != {"application/json"}:
            return JSONResponse({"error": "ask with Content-Type: application/json"}, 403)
        own = f"http://{request.headers.get('host', '')}"
        if any(origin != own for origin in request.headers.getlist("origin")):  # browsers send it
            return JSONResponse({"error": "only the playground's own page may ask"}, 403)
        try:
            question = read_question(await _body(request))
            text = _check_text(question.get("text"))
            async with limiter:
                # Who waited in line and left is not answered.
                if await request.is_disconnected():
                    return JSONResponse({"error": "too late"}, status_code=408)
                # Kernels and forward passes cannot be interrupted: a stopping server abandons them.
                return JSONResponse(
                    await to_thread.run_sync(answer, text, question, abandon_on_cancel=True)
                )
        except RobustokError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        except ClientDisconnect:
            return JSONResponse({"error": "too late"}, status_code=408)
        except asyncio.CancelledError:
            return JSONResponse({"error": "the server was stopped"}, status_code=503)

    return Route(path, endpoint, methods=["POST"])


async def _body(request: Request) -> bytes:
    # Counted as it comes: a request in chunks does not say its length.
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _BODY:
            raise RobustokError("the question is too long")
    return body


def read_question(body: bytes) -> JsonObject:
    """The JSON object of a request; raises RobustokError for anything else.

    >>> read_question(b'{"text": "hello"}')
    {'text': 'hello'}
    """
    try:
        question = json.loads(body)
        # Python reads NaN, which is no JSON, and a lone surrogate, which is no text.
        json.dumps(question, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise RobustokError("the question is not JSON") from None
    if not isinstance(question, dict):
        raise RobustokError("ask with a JSON object")
    return question


def _check_text(text: object) -> str:
    """The text; raises RobustokError if it is not a string or too long."""
    if not isinstance(text, str) or not text:
        raise RobustokError("type a text")
    if len(text) > LONGEST:
        raise RobustokError(f"a text of at most {LONGEST} characters; this one has {len(text)}")
    return text


def _options_of(question: JsonObject) -> list[str]:
    """The options of a question, the right one first."""
    options = question.get("options")
    if not isinstance(options, list) or not all(isinstance(o, str) and o for o in options):
        raise RobustokError("give the options, a line each, the right one first")
    if not 2 <= len(options) <= OPTIONS:
        raise RobustokError(f"give 2 to {OPTIONS} options, the right one first")
    return [_check_text(option) for option in options]


def _seed_of(question: JsonObject) -> int:
    """The seed of a question, 0 if it has none."""
    seed = question.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
        raise RobustokError("a seed is a whole number from 0 to 2147483647")
    return seed


def _spec_of(question: JsonObject, offered: Mapping[str, JsonObject]) -> str:
    """The spec of a question: an offered scheme, at a strength of the page's slider."""
    entry = offered[check_choice("scheme", question.get("scheme", "uniform"), offered)]
    if entry["strength"] is None or "strength" not in question:
        return entry["example"]
    value, least, most = question["strength"], entry["least"], entry["most"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise RobustokError(f"{entry['strength']} is a number from {least:g} to {most:g} here")
    return f"{entry['name']}({entry['strength']}={value})"


class Connection(H11Protocol):
    """A connection of the playground: of more than CONNECTIONS, the oldest unfinished one closes.

    Unfinished is one whose client has not sent a whole request: it holds no place that a reader
    needs.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close the oldest unfinished connection where there are too many.

        Args:
            transport: the socket of the new connection.
        """
        unfinished = [
            other for other in self.connections
            if isinstance(other, Connection) and other.conn.their_state in _UNFINISHED
        ]  # fmt: skip
        if len(self.connections) >= CONNECTIONS and unfinished:
            oldest = min(unfinished, key=lambda other: other.since)
            self.connections.discard(oldest)  # at once: many connections can come together
            oldest.transport.close()
        self.since = next(_numbers)
        super().connection_made(transport)


CONNECTIONS = 50
_UNFINISHED = (h11.IDLE, h11.SEND_BODY)  # states of a client that has yet to send
_numbers = count()  # of connections, in their order

# What uvicorn serves the playground with.
SERVER: JsonObject = {
    "log_level": "warning",
    "http": Connection,
    "ws": "none",
    "lifespan": "off",
    "proxy_headers": False,
    "server_header": False,
    "limit_concurrency": 100,
    "timeout_keep_alive": 5,
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
    """SAMPLES draws of a text, and the microseconds of one: the median over chunks.

    Raises RobustokError where they would take longer than SECONDS.
    """
    rows = list(draw.sample_batch([text], seed=seed, draws=ROWS))  # may compile a kernel
    times = [time.perf_counter()]
    while len(rows) < SAMPLES:
        if times[-1] - times[0] > SECONDS:
            raise RobustokError(
                f"{SAMPLES} draws of this scheme take more than {SECONDS:g} seconds: shorten the "
                "text, or give another scheme"
            )
        rows += draw.sample_batch([text], seed=seed, draws=_CHUNK, epoch=len(rows))
        times.append(time.perf_counter())
    return rows, 1e6 * float(np.median(np.diff(times))) / _CHUNK


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
    """The greedy attack on the first option, step after step until it wins or is stuck.

    Raises RobustokError where it takes longer than MODEL_SECONDS.
    """
    from robustok.attack import attack

    with _time_limit(model):
        result = attack(
            model, vocab, text, list(options), 0, steps=STEPS, overflow="canonical", seed=0
        )
    steps: list[JsonObject] = []
    for step in result.moves:
        shares = _shares(np.array([step.log_probs]))[0]
        won = bool(steps) and int(np.argmax(step.log_probs)) != 0
        steps.append({"tokens": _token_texts(vocab, step.ids), "shares": shares, "won": won})
        if won:
            break
    return steps


@contextmanager
def _time_limit(model: PreTrainedModel) -> Iterator[None]:
    """Refuse forward passes of ``model`` that start more than MODEL_SECONDS from now."""
    deadline = time.monotonic() + MODEL_SECONDS

    def check(*_: object) -> None:
        if time.monotonic() > deadline:
            raise RobustokError(
                f"the attack takes more than {MODEL_SECONDS:g} seconds: shorten the text"
            )

    hook = model.register_forward_pre_hook(check)
    try:
        yield
    finally:
        hook.remove()


def _token_texts(vocab: Vocabulary, ids: object) -> list[str]:
    return [visible(vocab.tokens[i]) for i in np.asarray(ids).tolist()]


def _shares(log_probs: np.ndarray) -> list[list[float]]:
    weights = np.exp(log_probs - log_probs.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True)).round(6).tolist()
