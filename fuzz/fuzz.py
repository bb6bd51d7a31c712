"""The fuzzer: no input may raise an exception other than NnefGradError, take more than
five seconds per step and 100 kB, or use more than 1 GiB of memory.

`make fuzz MINUTES=30`, or `python -m fuzz.fuzz --minutes 30 --jobs 4`. Failing inputs are
saved in fuzz/failures, as they are and minimised; `--replay FILE...` runs such files
again. An input is a function of the seed and its number.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from fuzz.documents import KINDS, Input, make_input
from fuzz.worker import ACCEPTED, item_of, request_of

ROOT = Path(__file__).parents[1]
FAILURES = Path(__file__).parent / "failures"
SECONDS = 5.0
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
            [sys.executable, "-m", "fuzz.worker", str(SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def _death(self) -> dict[str, Any]:
        code, trace = self.stop()
        found = re.search(r'File ".*nnef_grad/(\S+)", line \d+ in (\w+)', trace)
        place = f"{Path(found[1]).name}:{found[2]}" if found else "?"
        outcome = "Hang" if code in (-signal.SIGPROF, None) else "Crash"
        last = "" if found else "".join(trace.strip().splitlines()[-1:])
        what = f"exit code {code} {last}"
        return {"outcome": outcome, "kind": "", "what": what, "place": place}

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
    the two steps takes a few seconds at most.
    """
    lines = _reduce(data.splitlines(keepends=True), fails, seconds)
    letters = [bytes([byte]) for byte in b"".join(lines)]
    return b"".join(_reduce(letters, fails, seconds))


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


def _same_bug(worker: Worker, item: Input, failure: Failure) -> Callable[[bytes], bool]:
    """Whether other bytes show the same bug; the place of a hang does not count."""

    def fails(data: bytes) -> bool:
        found = failure_of(worker.run(request_of(Input(data, item.options))))
        if found is None or failure.outcome == "Hang":
            return found is not None and found.outcome == "Hang"
        return found.bug == failure.bug

    return fails


# ---- Files ----


def save(item: Input, suffix: str = "") -> Path:
    """An input as a file; its options are a comment at the end."""
    data = item.data + MARK + json.dumps(item.options).encode()
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
    outcomes: Counter[str] = field(default_factory=Counter)
    by_kind: Counter[tuple[str, str]] = field(default_factory=Counter)
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
        with self.lock:
            self.outcomes[reply["outcome"]] += 1
            verdict = ACCEPTED if reply["outcome"] == ACCEPTED else "rejected"
            self.by_kind[reply["kind"], verdict if failure is None else "failed"] += 1
            count = self._note(failure)
        if failure is not None and count <= SAVED_PER_BUG:
            self._keep(worker, item_of(request), failure, smaller=count == 1)

    def _note(self, failure: Failure | None) -> int:
        if failure is None:
            return 0
        self.bugs[failure.bug] += 1
        return self.bugs[failure.bug]

    def _keep(
        self, worker: Worker, item: Input, failure: Failure, *, smaller: bool
    ) -> None:
        path = save(item)
        print(f"{path.name}: {failure.outcome} in {failure.place}: {failure.what}")
        if smaller:
            fails = _same_bug(worker, item, failure)
            data = minimise(item.data, fails, SECONDS_TO_MINIMISE)
            save(Input(data, item.options), f".{path.stem}.min")

    def summary(self, seconds: float) -> str:
        """The results, in a few lines."""
        total = sum(self.outcomes.values())
        lines = [f"{total} inputs, {total / seconds:.1f} a second, seed {self.seed}"]
        lines += [f"{count:8} {name}" for name, count in self.outcomes.most_common()]
        for kind in KINDS:
            counts = {v: c for (k, v), c in sorted(self.by_kind.items()) if k == kind}
            lines.append(f"{kind}: {', '.join(f'{c} {v}' for v, c in counts.items())}")
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
        sys.stdout.buffer.write(make_input(options.show, options.kinds).data)
        return 0
    if options.replay:
        return min(replay(options.replay), 1)
    run = fuzz(options.minutes * 60, options.seed, options.jobs, options.kinds)
    print(run.summary(options.minutes * 60))
    return 1 if run.bugs else 0


if __name__ == "__main__":
    sys.exit(main())
