"""The command line in a process of its own, with limits of time and memory, and without
the cost of starting Python: the worker forks.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import NamedTuple, NoReturn

from fuzz.budget import memory_for, seconds_for
from fuzz.inputs import Command
from nnef_grad.commandline.cli import main

# A command that waits for so long, for a pipe say, is stuck.
PATIENCE = 120
LARGEST_FILE = 2**30
UNCAUGHT = 70


class Ended(NamedTuple):
    """How a process ended: its exit code, negative if a signal killed it; what it wrote;
    the processor time it took.
    """

    code: int
    stdout: bytes
    stderr: str
    seconds: float


def run(command: Command, here: Path, stdin: bytes, streams: Path) -> Ended:
    """Runs a command in a folder; its streams are files in another one."""
    (streams / "0").write_bytes(stdin)
    child = os.fork()
    if child == 0:
        _be(command, here, streams)
    _, status, used = os.wait4(child, 0)
    stderr = (streams / "2").read_bytes().decode("utf-8", "replace")
    seconds = used.ru_utime + used.ru_stime
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, (streams / "1").read_bytes(), stderr, seconds)


def _be(command: Command, here: Path, streams: Path) -> NoReturn:
    """Is the command, and ends."""
    code = UNCAUGHT
    try:
        _open_streams(streams)
        os.chdir(here)
        os.environ["NNEF_GRAD_TRACEBACK"] = "1"
        limit_memory(memory_for(command.size, check=command.is_check))
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
        signal.alarm(PATIENCE)
        seconds = seconds_for(command.size, check=command.is_check)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        code = _code_of(command.words())
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _open_streams(folder: Path) -> None:
    for number in range(3):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(folder / str(number), flags, 0o600), number)
    sys.stdin = os.fdopen(0, encoding="utf-8")
    sys.stdout = os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace")


def _code_of(words: list[str]) -> int:
    try:
        main(words)
    except SystemExit as ended:
        return (
            ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        )
    return 0


def limit_memory(more: int) -> None:
    """Limits the memory to what is used now, and some more."""
    pages = Path("/proc/self/statm").read_text().split()[0]
    limit = int(pages) * os.sysconf("SC_PAGE_SIZE") + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def unlimit_memory() -> None:
    """Takes the limit away."""
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
