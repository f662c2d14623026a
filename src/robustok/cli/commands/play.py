"""robustok play: a page to play with the tokenizations of a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robustok.errors import RobustokError

NAME = "play"


def command(
    tokenizer: Annotated[
        list[str] | None,
        typer.Option("--tokenizer", "-t", help="to choose from; may be given more than once"),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="a folder or hub name, to ask and to attack")
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="who may ask; any other than this machine is your choice")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 8765,
) -> None:
    """Serve a page to play with tokenizations.

    Type a text and see its tokens, draws of any scheme, and how far they lie; with --model, how an
    answer's probability moves, and the attack step by step.
    """
    from robustok.models import load_model
    from robustok.play import application, serve
    from robustok.play.server import LOOPBACK
    from robustok.vocabulary import Vocabulary

    sources = [*([model] if model else []), *(tokenizer or [])]
    if not sources:
        raise RobustokError(
            "give --tokenizer (a tokenizer.json, a folder or a hub name) or --model"
        )
    vocabularies = {_name(source): Vocabulary.load(source) for source in sources}
    loaded = load_model(model) if model else None
    hosts = LOOPBACK if host in LOOPBACK else ("*",)
    app = application(vocabularies, loaded, hosts=hosts)
    typer.echo(f"http://{host}:{port} (Ctrl-C ends it)", err=True)
    serve(app, host=host, port=port)


def _name(source: str) -> str:
    path = Path(source)
    return path.parent.name if path.name == "tokenizer.json" else path.name
