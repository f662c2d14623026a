"""robustok play: serve the playground, an interactive page about the tokenizations of a text."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from robustok.errors import RobustokError

NAME = "play"


def command(
    tokenizer: Annotated[
        list[str] | None,
        typer.Option("--tokenizer", "-t", help="tokenizer to offer; may be given more than once"),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="folder or hub name of a model to question and to attack"),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            help="address to serve at; other than loopback needs --allow-host",
        ),
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="host name that browsers may use for this machine"),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 8765,
) -> None:
    """Serve an interactive page about the tokenizations of a text.

    Type a text and see its tokens, draws of any scheme, and how far they lie; with --model, how an
    answer's probability moves, and the attack step by step.
    """
    from robustok.models import load_model
    from robustok.play import allowed_hosts, application, serve
    from robustok.vocabulary import Vocabulary

    sources = [*([model] if model else []), *(tokenizer or [])]
    if not sources:
        raise RobustokError(
            "give --tokenizer (a tokenizer.json, a folder or a hub name) or --model"
        )
    hosts = allowed_hosts(host, tuple(allow_host or ()))
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
