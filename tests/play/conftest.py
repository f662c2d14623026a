"""A playground of a small tokenizer, and a server of it on this machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.testclient import TestClient
from tests.oracles.processes import free_port

import robustok as rt
from robustok.models import Shape, small_model, train_tokenizer
from robustok.play import application

TEXT = "Which word starts with 'm': one, two, me? Answer:"
OPTIONS = [" me", " one", " two"]
TOKENIZER = train_tokenizer([TEXT + o for o in OPTIONS] * 4, 290)
VOCAB = rt.Vocabulary.load(TOKENIZER)
SHAPE = Shape(2, 32, 2, 1, 64, 256)
MODEL = small_model(VOCAB.size, SHAPE, seed=1)


def client(host: str = "127.0.0.1:8765", **options: Any) -> TestClient:
    return TestClient(application({"tiny": VOCAB}, **options), base_url=f"http://{host}")


@contextmanager
def serving(model: Any = None, **settings: Any) -> Iterator[int]:
    """A server in a thread; gives its port."""
    port, app = free_port(), application({"tiny": VOCAB}, {"tiny": model} if model else None)
    server = uvicorn.Server(
        uvicorn.Config(app, port=port, log_level="error", ws="none", **settings)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield port
    server.should_exit = True
    thread.join()
