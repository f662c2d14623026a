"""Code that runs in a new Python process, and trainings of two processes."""

import multiprocessing
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


def run(code: str, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` with more environment variables; it has to succeed and writes no bytecode."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, *arguments], capture_output=True, text=True,
        check=False, env=os.environ | settings,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def as_two_processes(work: Callable[[int, Path], None], folder: Path) -> None:
    """Call ``work(rank, folder)`` in two processes as a launcher of torch starts them.

    They are forked, since imports take longer than a small training.
    """
    context, port = multiprocessing.get_context("fork"), free_port()
    ranks = [context.Process(target=_as_rank, args=(i, port, work, folder)) for i in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(300)
        rank.kill()
    assert [rank.exitcode for rank in ranks] == [0, 0]


def _as_rank(rank: int, port: int, work: Callable[[int, Path], None], folder: Path) -> None:
    import torch

    torch.set_num_threads(1)  # those of the parent are gone
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()}, MASTER_ADDR="127.0.0.1")
    work(rank, folder)
