"""HTTP server of the playground's page and its three endpoints, on this machine.

A request is refused unless its Host is an allowed one, and a question unless the page itself asks:
its type is JSON, and Origin and Sec-Fetch-Site are the page's own. So no web page elsewhere can
ask through the reader's browser.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from importlib.resources import files
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from robustok.errors import RobustokError
from robustok.play.answers import attack_steps, picture, probabilities
from robustok.play.questions import LONGEST, options_of, read_question, seed_of, spec_of, text_of

if TYPE_CHECKING:
    from robustok.vocabulary import Vocabulary

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_BODY = 20_000  # bytes of a request, at most
_BODY_SECONDS = 5.0  # for a request to send them
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
Answer = Callable[[dict[str, Any]], Any]


def allowed_hosts(host: str, names: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The accepted Host headers of a server at ``host``, with ``names``.

    >>> allowed_hosts("127.0.0.2")
    ('127.0.0.1', 'localhost', '[::1]', '127.0.0.2')

    Args:
        host: name or address of the interface to bind.
        names: further accepted names of this machine.

    Raises RobustokError if other machines can reach ``host`` and ``names`` is empty.
    """
    try:
        address = ip_address(host)
    except ValueError:
        loopback, own = host == "localhost", host
    else:
        loopback = address.is_loopback
        own = f"[{address}]" if address.version == 6 else str(address)
    if not loopback and not names:
        raise RobustokError(
            f"other machines can reach {host}: give --allow-host with the name that their "
            "browsers use for this one, or leave --host out"
        )
    bad = [name for name in names if "*" in name or "/" in name or not name]
    if bad:
        raise RobustokError(f"'{bad[0]}' is no host name: give it as in the address, without port")
    return tuple(dict.fromkeys([*(LOOPBACK if loopback else ()), own, *names]))


def application(
    vocabularies: Mapping[str, Vocabulary], model: Any = None, *, hosts: tuple[str, ...] = LOOPBACK
) -> Starlette:
    """The playground as an ASGI application.

    >>> app = application({"toy": vocab}, model)
    >>> [route.path for route in app.routes]
    ['/', '/api/about', '/api/draw', '/api/score', '/api/attack']

    Args:
        vocabularies: the vocabularies to offer, by name.
        model: a causal language model for the first vocabulary; by default none.
        hosts: accepted Host headers (:func:`allowed_hosts`).
    """
    names = list(vocabularies)

    async def page(request: Request) -> HTMLResponse:
        return HTMLResponse(
            files("robustok.play").joinpath("page.html").read_text(encoding="utf-8")
        )

    async def about(request: Request) -> JSONResponse:
        return JSONResponse({"tokenizers": names, "model": model is not None, "longest": LONGEST})

    def draw(question: dict[str, Any]) -> Any:
        name = str(question.get("tokenizer") or names[0])
        if name not in vocabularies:
            raise RobustokError(f"no tokenizer '{name[:60]}' here")
        text, spec = text_of(question), spec_of(question)
        return picture(vocabularies[name], text, spec, seed=seed_of(question))

    def score(question: dict[str, Any]) -> Any:
        text, options, spec = text_of(question), options_of(question), spec_of(question)
        return probabilities(
            model, vocabularies[names[0]], text, options, spec, seed=seed_of(question)
        )

    def attack(question: dict[str, Any]) -> Any:
        return attack_steps(model, vocabularies[names[0]], text_of(question), options_of(question))

    draws, one = CapacityLimiter(2), CapacityLimiter(1)  # a model answers one question at a time
    routes = [Route("/", page), Route("/api/about", about), _post("/api/draw", draw, draws)]
    if model is not None:
        routes += [_post("/api/score", score, one), _post("/api/attack", attack, one)]
    checks = [
        Middleware(_SecurityHeaders),
        Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False),
    ]
    return Starlette(routes=routes, middleware=checks)


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
        if problem := _not_from_the_page(request):
            return JSONResponse({"error": problem}, status_code=403)
        try:
            question = read_question(await _body(request))
            async with limiter:
                # Who waited in line and left is not answered.
                if await request.is_disconnected():
                    return JSONResponse({"error": "too late"}, status_code=408)
                # Kernels and forward passes cannot be interrupted: a stopping server abandons them.
                answered = await to_thread.run_sync(answer, question, abandon_on_cancel=True)
                return JSONResponse(answered)
        except RobustokError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        except asyncio.CancelledError:
            return JSONResponse({"error": "the server was stopped"}, status_code=503)

    return Route(path, endpoint, methods=["POST"])


def _not_from_the_page(request: Request) -> str | None:
    """Why a question is refused, or None; the Host header is already checked."""
    headers = request.headers
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return "ask with Content-Type: application/json"
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != headers["host"].lower():
        return "a page of another origin may not ask"
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return "a page of another site may not ask"
    return None


async def _body(request: Request) -> bytes:
    # Counted as it comes: a request in chunks does not say its length.
    body = b""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > _BODY:
                    raise RobustokError("the question is too long")
    except TimeoutError:
        raise RobustokError("the question came too slowly") from None
    return body


def serve(app: Starlette, *, host: str, port: int) -> None:
    """Serve the playground until interrupted; KeyboardInterrupt ends it.

    Args:
        app: the playground's application.
        host: name or address of the interface to bind; "127.0.0.1" serves this machine only.
        port: TCP port, from 0 to 65,535.

    Raises RobustokError where the port is taken.
    """
    import socket

    import uvicorn

    from robustok.play.connection import Connection

    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise RobustokError(
                f"{host} port {port} cannot be used ({error.strerror}): give another --host or "
                "--port"
            ) from None
    config = uvicorn.Config(
        app, host=host, port=port, log_level="warning", http=Connection, ws="none", lifespan="off",
        proxy_headers=False, server_header=False, limit_concurrency=100, timeout_keep_alive=5,
        timeout_graceful_shutdown=1, h11_max_incomplete_event_size=16_384,
    )  # fmt: skip
    uvicorn.Server(config).run()
