"""robustok play: serve the playground, an interactive page about the tokenizations of a text."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import typer

from robustok.cli.options import option
from robustok.errors import RobustokError
from robustok.models import load_model
from robustok.tokenizer.vocabulary import Vocabulary


@dataclass(frozen=True)
class PlayOptions:
    tokenizer: tuple[str, ...] = option(
        "tokenizer to offer; may be given more than once", "--tokenizer", "-t", default=(),
        metavar="PATH",
    )  # fmt: skip
    model: str | None = option(
        "folder or hub name of a model to question and to attack", default=None, metavar="MODEL"
    )
    host: str = option(
        "address to serve at; other than loopback needs --allow-host", default="127.0.0.1",
        metavar="HOST",
    )  # fmt: skip
    allow_host: tuple[str, ...] = option(
        "host name that browsers may use for this machine", default=(), metavar="HOST"
    )
    port: int = option("port to serve at", default=8765, min=1, max=65535)


def play(options: PlayOptions) -> None:
    """Serve an interactive page about the tokenizations of a text.

    Type a text and see its tokens, draws of any scheme, and how far they lie; with --model, how an
    answer's probability moves, and the attack step by step.
    """
    from robustok.play import allowed_hosts, application, serve

    host, port, model = options.host, options.port, options.model
    sources = [*([model] if model else []), *options.tokenizer]
    if not sources:
        raise RobustokError(
            "give --tokenizer (a tokenizer.json, a folder or a hub name) or --model"
        )
    hosts = allowed_hosts(host, options.allow_host)
    vocabularies = {_name(source): Vocabulary.load(source) for source in sources}
    loaded = load_model(model) if model else None
    app = application(vocabularies, loaded, hosts=hosts)
    address = f"[{host}]" if ":" in host else host
    typer.echo(f"http://{address}:{port} (stop with Ctrl-C)", err=True)
    # Without KeyboardInterrupt where SIGINT was ignored at the start, as in the background.
    with suppress(KeyboardInterrupt):
        serve(app, host=host, port=port)
    typer.echo("robustok: stopped", err=True)
    os._exit(130)  # a draw or a forward pass cannot be interrupted, and an exit would wait


def _name(source: str) -> str:
    path = Path(source)
    return path.parent.name if path.name == "tokenizer.json" else path.name
