"""The fuzzer: no input may raise an exception other than NnefGradError, take more time or
memory than its size allows (budget.py), or make the command line do what it must not
(commands.py). Training steps, loops and results that are changed have properties of their
own (trained.py, unrolled.py, changed.py). The kinds of input are in kinds.py.

`make fuzz MINUTES=30`, or `python -m fuzz.fuzz --minutes 30 --jobs 4`. Failing inputs are
saved in fuzz/failures, as they are and minimised; `--replay FILE...` runs such files
again. An input is a function of the seed and its number.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from fuzz.broken import place_in
from fuzz.figures import Figures
from fuzz.inputs import Input
from fuzz.kinds import KINDS, make_input
from fuzz.tars import BLOCK
from fuzz.worker import item_of, request_of

ROOT = Path(__file__).parents[1]
FAILURES = Path(__file__).parent / "failures"
# A worker without a reply for this long is stuck without using the processor.
PATIENCE = 600.0
INPUTS_PER_WORKER = 2000
SECONDS_TO_MINIMISE = 15.0
SAVED_PER_BUG = 3
MARK = b"\n# fuzz "


class Failure(NamedTuple):
    """A bug that an input shows: the outcome and the function."""

    outcome: str
    place: str
    what: str

    @property
    def bug(self) -> tuple[str, str]:
        return self.outcome, self.place


# ---- Workers ----


class Worker:
    """A process for many inputs, which is replaced when it dies."""

    def __init__(self) -> None:
        self.inputs = 0
        self.process: subprocess.Popen[str] | None = None

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to a request, or the cause of the process's death."""
        process = self._ready()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            answered, _, _ = select.select([process.stdout], [], [], PATIENCE)
            line = process.stdout.readline() if answered else ""
        except BrokenPipeError:
            line = ""
        return json.loads(line) if line else self._death()

    def _ready(self) -> subprocess.Popen[str]:
        self.inputs += 1
        if self.inputs % INPUTS_PER_WORKER == 0:
            self.stop()
        if self.process is None:
            self.process = self._start()
        return self.process

    def _start(self) -> subprocess.Popen[str]:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        return subprocess.Popen(
            [sys.executable, "-m", "fuzz.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        )

    def _death(self) -> dict[str, Any]:
        code, trace = self.stop()
        outcome = "Hang" if code in (-signal.SIGPROF, None) else "Crash"
        place = place_in(trace)
        last = trace.strip().splitlines()[-1:] if place == "?" else []
        what = f"exit code {code} {''.join(last)}"
        return {"outcome": outcome, "what": what, "place": place}

    def stop(self) -> tuple[int | None, str]:
        """Ends the process, and returns its exit code (None if it was still running) and
        its stderr.
        """
        process, self.process = self.process, None
        if process is None:
            return 0, ""
        try:
            process.communicate(timeout=1)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            code = None
        with self.errors:
            self.errors.seek(0)
            return code, self.errors.read()


def failure_of(reply: dict[str, Any]) -> Failure | None:
    """The bug in a reply, if any."""
    if "place" not in reply:
        return None
    return Failure(reply["outcome"], reply["place"], reply["what"])


# ---- Making a failing input smaller ----


def minimise(data: bytes, fails: Callable[[bytes], bool], seconds: float) -> bytes:
    """A smaller input that fails too: without lines, then without parts of lines. Each of
    the two steps takes a few seconds at most. Of an archive, whole blocks are left out.
    """
    if b"ustar" in data or data.startswith(b"\x1f\x8b"):
        blocks = [data[i : i + BLOCK] for i in range(0, len(data), BLOCK)]
        return b"".join(_reduce(blocks, fails, seconds))
    lines = _reduce(data.splitlines(keepends=True), fails, seconds)
    letters = [bytes([byte]) for byte in b"".join(lines)]
    return b"".join(_reduce(letters, fails, seconds))


def without_arguments(item: Input, fails: Callable[[Input], bool]) -> Input:
    """A command without the arguments that do not matter, on the same model."""
    command = item.command
    if command is None:
        return item
    for argument in command.arguments:
        fewer = [each for each in command.arguments if each is not argument]
        smaller = replace(command, arguments=fewer)
        if fails(changed := Input(item.data, smaller.as_options(), item.kind)):
            command, item = smaller, changed
    return item


def _reduce(
    pieces: list[bytes], fails: Callable[[bytes], bool], seconds: float
) -> list[bytes]:
    end = time.monotonic() + seconds
    size = len(pieces) // 2
    while size:
        start = 0
        while start < len(pieces) and time.monotonic() < end:
            fewer = pieces[:start] + pieces[start + size :]
            if fails(b"".join(fewer)):
                pieces = fewer
            else:
                start += size
        size //= 2
    return pieces


def _same_bug(worker: Worker, failure: Failure) -> Callable[[Input], bool]:
    """Whether other inputs show the same bug; the place of a hang does not count."""

    def fails(item: Input) -> bool:
        found = failure_of(worker.run(request_of(item)))
        if found is None or failure.outcome == "Hang":
            return found is not None and found.outcome == "Hang"
        return found.bug == failure.bug

    return fails


# ---- Files ----


def stored(item: Input) -> bytes:
    """The bytes of an input, with its options as a comment at the end."""
    return item.data + MARK + json.dumps(item.options).encode()


def save(item: Input, suffix: str = "") -> Path:
    """Saves an input as a file."""
    data = stored(item)
    FAILURES.mkdir(exist_ok=True)
    path = FAILURES / f"{sha256(data).hexdigest()[:12]}{suffix}.nnef"
    path.write_bytes(data)
    return path


def read(path: Path) -> Input:
    """The input in a file, saved here or not."""
    data = path.read_bytes()
    text, mark, options = data.rpartition(MARK)
    return Input(text, json.loads(options)) if mark else Input(data)


# ---- The run ----


@dataclass
class Run:
    """The state of a run."""

    seed: int
    kinds: Sequence[str]
    end: float
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    figures: Figures = field(default_factory=Figures)
    bugs: Counter[tuple[str, str]] = field(default_factory=Counter)
    lock: Lock = field(default_factory=Lock)

    def work(self) -> None:
        """Runs inputs until the time is up."""
        worker = Worker()
        while time.monotonic() < self.end:
            self._one(worker)
        worker.stop()

    def _one(self, worker: Worker) -> None:
        with self.lock:
            seed = f"{self.seed}:{next(self.numbers)}"
        request = {"seed": seed, "kinds": self.kinds}
        reply = worker.run(request)
        failure = failure_of(reply)
        if "kind" not in reply:
            reply["kind"] = item_of(request).kind
        with self.lock:
            self.figures.add(seed, reply)
            count = self._note(failure)
        if failure is not None and count <= SAVED_PER_BUG:
            self._keep(worker, seed, item_of(request), failure, smaller=count == 1)

    def _note(self, failure: Failure | None) -> int:
        if failure is None:
            return 0
        self.bugs[failure.bug] += 1
        return self.bugs[failure.bug]

    def _keep(
        self, worker: Worker, seed: str, item: Input, failure: Failure, *, smaller: bool
    ) -> None:
        path = save(item)
        found = f"{failure.outcome} in {failure.place}: {failure.what}"
        print(f"{path.name} ({seed}, {item.kind}): {found}", flush=True)
        if smaller:
            fails = _same_bug(worker, failure)
            item = without_arguments(item, fails)
            data = minimise(
                item.data,
                lambda data: fails(Input(data, item.options)),
                SECONDS_TO_MINIMISE,
            )
            save(Input(data, item.options), f".{path.stem}.min")

    def summary(self, seconds: float) -> str:
        """The results, in a few lines."""
        total = self.figures.total
        lines = [f"{total} inputs, {total / seconds:.1f} a second, seed {self.seed}"]
        lines += self.figures.table(list(KINDS))
        lines += [f"{n:8} {o} in {p}" for (o, p), n in self.bugs.most_common()]
        return "\n".join([*lines, f"{len(self.bugs)} bugs"])


def fuzz(seconds: float, seed: int, jobs: int, kinds: Sequence[str]) -> Run:
    """Runs jobs in parallel for some time."""
    run = Run(seed, kinds, time.monotonic() + seconds)
    with ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(run.work) for _ in range(jobs)]:
            future.result()
    return run


def replay(paths: Sequence[Path]) -> int:
    """Runs the inputs of files again, and returns the number of failures."""
    worker, failures = Worker(), 0
    for path in paths:
        reply = worker.run(request_of(read(path)))
        failures += "place" in reply
        print(f"{path.name}: {reply['outcome']} {reply.get('what', '')}")
    worker.stop()
    return failures


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the fuzzer; the exit code is 1 if an input failed."""
    parser = argparse.ArgumentParser(description="Fuzz the compiler.")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--replay", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--show", metavar="SEED:NUMBER", help="print an input")
    options = parser.parse_args(arguments)
    if options.show:
        sys.stdout.buffer.write(stored(make_input(options.show, options.kinds)))
        return 0
    if options.replay:
        return min(replay(options.replay), 1)
    run = fuzz(options.minutes * 60, options.seed, options.jobs, options.kinds)
    print(run.summary(options.minutes * 60))
    return 1 if run.bugs else 0


if __name__ == "__main__":
    sys.exit(main())
