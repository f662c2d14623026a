"""The page and its three questions, over HTTP on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

from robustok.errors import RobustokError
from robustok.play.answers import LONGEST, attack_steps, check_text, picture, probabilities

if TYPE_CHECKING:
    from robustok.vocabulary import Vocabulary

LOOPBACK = ("127.0.0.1", "localhost")
OPTIONS = 8  # of a question, at most
_BODY = 20_000  # bytes of a request, at most


def application(
    vocabularies: Mapping[str, Vocabulary], model: Any = None, *, hosts: tuple[str, ...] = LOOPBACK
) -> Starlette:
    """The playground as an ASGI application.

    >>> app = application({"mine": vocab}, model)
    >>> [route.path for route in app.routes]
    ['/', '/api/about', '/api/draw', '/api/score', '/api/attack']

    ``vocabularies`` are the tokenizers to choose from, by name; ``model``, if given, goes with the
    first. Requests for other hosts than ``hosts`` are refused, so that no web page elsewhere can
    ask through the reader's browser.
    """
    names = list(vocabularies)
    lock = threading.Lock()  # a model answers one question at a time

    async def page(request: Request) -> HTMLResponse:
        text = files("robustok.play").joinpath("page.html").read_text(encoding="utf-8")
        return HTMLResponse(text, headers={"Content-Security-Policy": _POLICY})

    async def about(request: Request) -> JSONResponse:
        return JSONResponse({"tokenizers": names, "model": model is not None, "longest": LONGEST})

    def draw(asked: dict[str, Any]) -> Any:
        vocab = vocabularies.get(str(asked.get("tokenizer") or names[0]))
        if vocab is None:
            raise RobustokError(f"no tokenizer '{asked.get('tokenizer')}' here")
        return picture(vocab, check_text(asked.get("text")), _spec(asked), seed=_seed(asked))

    def score(asked: dict[str, Any]) -> Any:
        text, options = check_text(asked.get("text")), _options(asked)
        with lock:
            return probabilities(
                model, vocabularies[names[0]], text, options, _spec(asked), seed=_seed(asked)
            )

    def attack(asked: dict[str, Any]) -> Any:
        text, options = check_text(asked.get("text")), _options(asked)
        with lock:
            return attack_steps(model, vocabularies[names[0]], text, options)

    routes = [Route("/", page), Route("/api/about", about), _post("/api/draw", draw)]
    if model is not None:
        routes += [_post("/api/score", score), _post("/api/attack", attack)]
    guard = Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    return Starlette(routes=routes, middleware=[guard])


_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
)


def _post(path: str, answer: Callable[[dict[str, Any]], Any]) -> Route:
    """A question as JSON; what is wrong with it comes back as one line."""

    async def endpoint(request: Request) -> JSONResponse:
        try:
            asked = json.loads(await _body(request))
            if not isinstance(asked, dict):
                raise RobustokError("ask with a JSON object")
            return JSONResponse(await run_in_threadpool(answer, asked))
        except RobustokError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        except ValueError:
            return JSONResponse({"error": "the question is not JSON"}, status_code=400)

    return Route(path, endpoint, methods=["POST"])


async def _body(request: Request) -> bytes:
    # Counted as it comes: a request in chunks does not say its length.
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _BODY:
            raise RobustokError("the question is too long")
    return body


def _spec(asked: dict[str, Any]) -> str:
    spec = asked.get("scheme", "uniform")
    if not isinstance(spec, str) or len(spec) > 200:
        raise RobustokError("name a scheme, such as uniform")
    return spec


def _seed(asked: dict[str, Any]) -> int:
    seed = asked.get("seed", 0)
    if not isinstance(seed, int) or not 0 <= seed < 2**31:
        raise RobustokError("a seed is a whole number from 0 on")
    return seed


def _options(asked: dict[str, Any]) -> list[str]:
    options = asked.get("options")
    if not isinstance(options, list) or not all(isinstance(o, str) and o for o in options):
        raise RobustokError("give the options, a line each, the right one first")
    if not 2 <= len(options) <= OPTIONS:
        raise RobustokError(f"give 2 to {OPTIONS} options, the right one first")
    return [check_text(option) for option in options]


def serve(app: Starlette, *, host: str, port: int) -> None:
    """Serve until interrupted.

    Raises RobustokError where the port is taken.
    """
    import socket

    import uvicorn

    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise RobustokError(
                f"{host} port {port} cannot be used ({error.strerror}): give another --port"
            ) from None
    uvicorn.run(app, host=host, port=port, log_level="warning")
