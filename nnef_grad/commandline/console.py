"""Standard streams, progress, exit codes and signals of a command.

A result reaches stdout whole, or the command fails. A message that stderr does not take
is lost, and changes nothing else.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from itertools import chain
from pathlib import Path
from threading import Event, Lock, Thread
from types import FrameType
from typing import IO, Any, NoReturn

import click

from nnef_grad.base.errors import (
    InternalError,
    NnefGradError,
    Problem,
    UsageError,
    visible,
)
from nnef_grad.base.source import Source
from nnef_grad.storage.files import ENDING, set_handlers, text_of

PIPE = "-"
USER_ERROR = 2
INTERNAL_ERROR = 1


def read_stdin() -> Source:
    """The text on stdin."""
    if sys.stdin is None:
        raise UsageError("cannot read stdin: it is closed")
    try:
        return text_of(sys.stdin.buffer, "<stdin>")
    except OSError as error:
        raise UsageError(f"cannot read stdin: {error.strerror or error}") from None


def print_result(text: str) -> None:
    """Writes a text to stdout.

    Raises:
        UsageError: stdout is closed, or does not take all of it.
        BrokenPipeError: the reader is gone.
    """
    if sys.stdout is None:
        raise UsageError("cannot write to stdout: it is closed")
    left = memoryview(text.encode())
    try:
        # An unbuffered stream may take a part at a time.
        while left:
            left = left[sys.stdout.buffer.write(left) or 0 :]
        sys.stdout.buffer.flush()
    except OSError as error:
        _discard(sys.stdout)
        if isinstance(error, BrokenPipeError):
            raise
        message = f"cannot write to stdout: {error.strerror or error}"
        raise UsageError(message) from None


def as_json(**data: Any) -> str:
    """A message for programs."""
    import json  # for programs only

    return json.dumps(data)


def print_message(text: str) -> None:
    """Writes a text to stderr, if that is possible; a name in it does nothing there."""
    _write(f"{visible(text)}\n")


def _write(text: str) -> None:
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


def _discard(stream: IO[str]) -> None:
    """Lets a stream lose what it could not write, also when the process ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


# ---- Progress ----

# The seconds before anything is shown, and between two changes.
DELAY = 2.0
INTERVAL = 0.25
# Back to the beginning of the line, and clear it.
CLEAR = "\r\x1b[K"


class Progress:
    """A line on stderr, if that is a terminal; it is gone when the work is done."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown and sys.stderr is not None and sys.stderr.isatty()
        self._lock = Lock()
        self._label = ""
        self._start = 0.0
        self._done, self._total = 0, 0

    @contextmanager
    def stage(self, label: str) -> Iterator[None]:
        """Shows what is being done, if it takes longer than a moment."""
        self._label, self._start, self._total = label, time.monotonic(), 0
        if not self._shown:
            yield
            return
        finished = Event()

        def show() -> None:
            wait = DELAY
            while not finished.wait(wait):
                wait = INTERVAL
                with self._lock:
                    _write(f"{CLEAR}{self._text()}")

        thread = Thread(target=show, daemon=True)
        thread.start()
        try:
            yield
        finally:
            finished.set()
            thread.join()
            _write(CLEAR)

    def update(self, done: int, total: int) -> None:
        """Says how much of the stage is done."""
        self._done, self._total = done, total

    def print(self, text: str) -> None:
        """Writes a line to stderr that stays."""
        with self._lock:
            _write(CLEAR if self._shown else "")
            print_message(text)

    def _text(self) -> str:
        seconds = time.monotonic() - self._start
        if not self._total:
            return f"{self._label} ... {seconds:.0f} s"
        text = f"{self._label} ... {self._done} of {self._total}"
        if not self._done:
            return f"{text}, {seconds:.0f} s"
        left = seconds / self._done * (self._total - self._done)
        return f"{text}, about {left:.0f} s left"


# ---- Exit codes ----

# The option that would help against a problem, by its remedy, and how.
_ADVICE = {
    "constant": ("constant", "; --constant NAME=X makes an input one"),
    "dialect": ("dialect", ": read it with --dialect tract"),
    "lenient": ("lenient", ", or read it with --lenient"),
    "overwrite": ("force", ": use --force to replace it"),
    "symbol": ("symbol", ": give it one with --symbol, or by --batch or --input-shape"),
    "unroll": ("unroll", ": read it with --unroll N, for so many steps"),
    "smaller": (
        "check_memory",
        ": try a smaller --batch or --input-shape, or allow it by --check-memory",
    ),
}


def with_advice(problem: Problem) -> Problem:
    """The problem, with the option that would help, if the command that runs has it."""
    context = click.get_current_context(silent=True)
    option, advice = _ADVICE.get(problem.remedy or "", ("", ""))
    if context is None or option not in context.params:
        return problem
    return problem._replace(message=f"{problem.message}{advice}")


def _message(error: NnefGradError, options: Mapping[str, Any]) -> str:
    """The message of a mistake, in the format of messages that the options say."""
    remedies = {p.remedy for p in error.problems}
    error.problems = tuple(map(with_advice, error.problems))
    title, command = "", ""
    if "constant" in remedies and error.constants and "constant" in options:
        title, command = "with a constant, as an example", _constants(error.constants)
    elif "symbol" in remedies:
        title, command = "for all sizes, as an example", _sizes(error.sizes or sizes)
    elif remedies == {"lenient"} and "lenient" in options:
        title, command = "with all repairs", _command("--lenient")
    elif "dialect" in remedies and "dialect" in options:
        title, command = "as tract reads it", _command("--dialect", "tract")
    elif "onnx" in remedies and options.get("out"):
        title, command = "as an ONNX file", _to_onnx(options)
    if options.get("format") == "json":
        named = {"command": command} if command else {}
        return as_json(errors=[p.as_data() for p in error.problems], **named)
    text = error.render()
    return f"{text}\n{title}: {command}" if command else text


def _sizes(sizes: Mapping[str, int]) -> str:
    """The whole command, with a number for each open size; empty without any."""
    numbers = chain.from_iterable(("--symbol", f"{n}={k}") for n, k in sizes.items())
    return _command(*numbers) if sizes else ""


def _constants(constants: Mapping[str, float]) -> str:
    """The whole command, with numbers for some inputs; empty without any."""
    pairs = constants.items()
    words = chain.from_iterable(("--constant", f"{n}={x:g}") for n, x in pairs)
    return _command(*words) if constants else ""


def _command(*more: str) -> str:
    """The whole command with further words, to paste."""
    words = _words()
    return _joined([*words, *more]) if words else ""


def _to_onnx(options: Mapping[str, Any]) -> str:
    """The whole command, which writes an ONNX file, or a step for ONNX Runtime, instead."""
    kept, words, out = list[str](), iter(_words()), str(options["out"])
    if click.get_current_context(silent=True) is None:
        return ""
    for word in words:
        if word in ("-o", "--out", "--target"):
            next(words)
        elif not word.startswith(("-o", "--out=", "--target=")):
            kept.append(word)
    if "loss" in options:
        return _joined([*kept, "-o", out, "--target", "onnx"])
    named = f"{Path(options['model']).stem}_bwd" if out == "-" else out
    return _joined([*kept, "-o", str(Path(named).with_suffix(".onnx"))])


def _words() -> list[str]:
    """The words of the command that runs, if one does."""
    context = click.get_current_context(silent=True)
    if context is None:
        return []
    return [*context.command_path.split(), *(context.obj or ())]


def _joined(words: list[str]) -> str:
    import shlex

    return shlex.join(words)


# A number for each open size of the model that was opened last, by its symbol.
sizes: dict[str, int] = {}

Command = Callable[..., None]


def command_line(command: Command) -> Command:
    """The command, which turns exceptions into messages and exit codes."""

    @wraps(command)
    def run(**options: Any) -> None:
        sizes.clear()
        try:
            with _clean_up_on_signals():
                command(**options)
        except NnefGradError as error:
            _fail(_message(error, options), USER_ERROR)
        except MemoryError:
            _fail("error: there is not enough memory", USER_ERROR)
        except BrokenPipeError:
            sys.exit(INTERNAL_ERROR)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as error:
            if os.environ.get("NNEF_GRAD_TRACEBACK"):
                raise
            what = f"this is a bug in nnef-grad ({type(error).__name__}: {error})"
            what = str(error) if isinstance(error, InternalError) else what
            advice = "set NNEF_GRAD_TRACEBACK=1 to see where"
            _fail(f"error: {what}; {advice}", INTERNAL_ERROR)

    return run


def _fail(message: str, code: int) -> NoReturn:
    print_message(message)
    sys.exit(code)


@contextmanager
def _clean_up_on_signals() -> Iterator[None]:
    """Ends the process on SIGINT and SIGTERM as on an error, so that what is half
    written is removed. A second signal does not disturb that.
    """
    previous = set_handlers(dict.fromkeys(ENDING, _end))
    try:
        yield
    finally:
        set_handlers(previous)


def _end(number: int, _: FrameType | None) -> NoReturn:
    set_handlers(dict.fromkeys(ENDING, signal.SIG_IGN))
    if number == signal.SIGINT:
        print_message("interrupted")
    sys.exit(128 + number)
