"""Fuzz the public API, the guard middleware or random tokenizers: calls in a child that may crash.

    python -m fuzz.run --calls 60000 --workers 2
    python -m fuzz.run --seconds 3600
    python -m fuzz.run --seed 7 --only 12345   # repeat one call, with its traceback
    python -m fuzz.run --target bodies         # requests to the guard middleware instead
    python -m fuzz.run --target tokenizers     # tokenizers made at random, six texts each
    python -m fuzz.run --target real           # those of ROBUSTOK_DATA, 200 texts each

Each call depends on the seed and its number only, so a finding is repeated by its number. The
child writes the number of the call it is about to make into shared memory; after a crash or a
call of more than ``--limit`` seconds the parent reports that number and starts a new child behind
it. Prints what the calls returned, added up: the target `tokenizers` counts what it compared and
what was refused, by reason. A finding of it comes with a script that shows it.
Exit status 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib
import logging
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

TARGETS = {
    "api": "api",
    "bodies": "bodies",
    "tokenizers": "random_tokenizers",
    "real": "real_tokenizers",
}  # their modules
REPORT_SECONDS = 2  # between two reports of what calls returned
START_SECONDS = 300  # loading and compiling count as no call


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the API, bodies of requests, or tokenizers.")
    parser.add_argument("--target", choices=TARGETS, default="api")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--calls", type=int, default=sys.maxsize)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds one call may take")
    parser.add_argument("--first", type=int, default=0, help="number of the first call")
    parser.add_argument("--only", type=int, help="make this call alone, in this process")
    options = parser.parse_args()
    if options.only is not None:
        try:
            _print_counts(_counts(_target(options.target)(options.seed, options.only)))
        except AssertionError as e:
            print(getattr(e, "script", ""))
            raise
        return 0
    if options.seconds == float("inf") and options.calls == sys.maxsize:
        options.seconds = 60.0
    # The 36 MB of a sampler's store: those of the system are zero, those of the heap get zeroed.
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(1 << 20))
    # Threads of the tokenizers library cost more than a batch of short texts.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    workers = [_Worker(options.first + i, options) for i in range(options.workers)]
    started = reported = time.monotonic()
    with contextlib.suppress(KeyboardInterrupt):  # what was found until then is printed
        while any(worker.process is not None for worker in workers):
            time.sleep(0.2)
            for worker in workers:
                worker.look()
            if time.monotonic() - started > options.seconds:
                break
            if time.monotonic() - reported > 60:
                reported = time.monotonic()
                print(f"{sum(w.n_calls for w in workers):,} calls, "
                      f"{sum(len(w.findings) for w in workers)} findings", flush=True)  # fmt: skip
    for worker in workers:
        worker.stop()
    findings = Counter(f for worker in workers for f in worker.findings)
    numbers = {f: n for worker in workers for f, n in worker.numbers.items()}
    _print_counts(sum((worker.counts for worker in workers), Counter()))
    for finding, count in findings.most_common():
        repeat = f"--target {options.target} --seed {options.seed} --only {numbers[finding]}"
        print(f"\n{count} x, first {repeat}:\n{finding}")
    calls = sum(w.n_calls for w in workers)
    print(f"\n{calls:,} calls, {findings.total()} findings of {len(findings)} kinds")
    return 1 if findings else 0


class _Worker:
    """A child process that makes every n-th call from a number on, and what it has found."""

    def __init__(self, number: int, options: argparse.Namespace) -> None:
        self.options = options
        self.findings: list[str] = []
        self.numbers: dict[str, int] = {}
        self.counts: Counter[str] = Counter()  # of what the calls returned
        self.n_calls = 0
        self.start(number)

    def start(self, number: int) -> None:
        options, spawn = self.options, multiprocessing.get_context("spawn")
        self.current: Any = spawn.Value("q", -1)
        self.pipe, child = spawn.Pipe(duplex=False)
        last = options.first + options.calls
        run = options.target, options.seed, number, options.workers, last, self.current, child
        self.process: Any = spawn.Process(target=_work, args=run, daemon=True)
        self.process.start()
        child.close()
        self.number, self.since = -1, time.monotonic()

    def look(self) -> None:
        """Collect findings; replace a child that crashed or hangs."""
        if self.process is None:
            return
        is_dead = not self.process.is_alive()
        with contextlib.suppress(EOFError):
            while self.pipe.poll():
                number, n_calls, finding, script, counts = self.pipe.recv()
                self.n_calls += n_calls
                self.counts += counts
                if finding:
                    self.note(number, finding, script)
        number = self.current.value
        if number != self.number:
            self.number, self.since = number, time.monotonic()
        limit = self.options.limit if number >= 0 else START_SECONDS
        if is_dead and self.process.exitcode == 0:
            self.process = None
        elif is_dead:
            self.restart(number, f"the process ended with status {self.process.exitcode}")
        elif time.monotonic() - self.since > limit:
            self.restart(number, f"a call of more than {self.options.limit:g} seconds")

    def restart(self, number: int, finding: str) -> None:
        self.note(number, finding)
        self.stop()
        if number >= 0:
            self.start(number + self.options.workers)

    def note(self, number: int, finding: str, script: str = "") -> None:
        if finding not in self.numbers:
            print(f"call {number}: {finding}\n{script}", flush=True)
        self.findings.append(finding)
        self.numbers.setdefault(finding, number)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
        self.process = None


def _target(name: str) -> Callable[[int, int], Any]:
    """The function that makes the call of a seed and a number."""
    return importlib.import_module(f"fuzz.{TARGETS[name]}").call


def _work(
    target: str, seed: int, first: int, step: int, last: int, current: Any, pipe: Any
) -> None:
    faulthandler.enable()
    logging.getLogger("robustok").setLevel(logging.ERROR)  # a warning a call is no finding
    call = _target(target)
    with contextlib.suppress(Exception):
        call(seed, first)  # loads and compiles, before the clock of the first call
    counts, n_calls, sent = Counter[str](), 0, time.monotonic()
    for number in range(first, last, step):
        current.value = number
        finding = script = ""
        try:
            counts += _counts(call(seed, number))
        except Exception as e:  # every other error than a RobustokError is a finding
            where = traceback.extract_tb(e.__traceback__)
            calls = " > ".join(f"{f.name}:{f.lineno}" for f in where[1:5])
            at = f"at {where[-1].filename}:{where[-1].lineno} through {calls}"
            script = getattr(e, "script", "")
            finding = str(e) if script else f"{type(e).__name__}: {str(e)[:200]}\n  {at}"
        n_calls += 1
        if finding or number + step >= last or time.monotonic() - sent > REPORT_SECONDS:
            pipe.send((number, n_calls, finding, script, counts))
            counts, n_calls, sent = Counter(), 0, time.monotonic()
    pipe.close()


def _counts(returned: Any) -> Counter[str]:
    """What a call returned, counted: a Counter, or the name of what was called."""
    return returned if isinstance(returned, Counter) else Counter([str(returned)])


def _print_counts(counts: Counter[str]) -> None:
    for name, count in sorted(counts.items()):
        print(f"{count:12,} {name}")


if __name__ == "__main__":
    sys.exit(main())
