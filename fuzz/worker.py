"""A process that compiles input after input, within limits of time and memory.

Requests are lines of JSON on stdin, replies are lines on stdout. A process that runs out
of processor time is killed by SIGPROF, and prints its stack on stderr; wall-clock time
would blame innocent inputs on a busy machine.
"""

from __future__ import annotations

import faulthandler
import inspect
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nnef_grad
from fuzz.documents import Input, make_input
from nnef_grad.errors import NnefGradError
from nnef_grad.language.format import format_text
from nnef_grad.source import Source
from nnef_grad.storage.files import decode

MEMORY = 2**30
# The size of text that the seconds are for; a larger text gets proportionally more.
BYTES = 100_000
BYTES_OF_AN_OPERATION = 100
ACCEPTED = "accepted"
# The output may be much longer than the input; then it is not read again.
LONG = 2_000_000

Clock = Callable[[int], None]


class Broken(Exception):
    """A property that every document must have does not hold."""


# ---- The property ----


def examine(item: Input, clock: Clock = lambda size: None) -> str:
    """The outcome of an input: `accepted`, or the class of its error. The clock is
    restarted at each timed step, with the size of its input.

    Raises:
        Exception: it is neither, which is a bug in the compiler.
    """
    try:
        _compile(item, clock)
    except NnefGradError as error:
        # An error shows the whole chain of calls, which may be long.
        _ = str(error)
        return type(error).__name__
    return ACCEPTED


def _compile(item: Input, clock: Clock) -> None:
    size = len(item.data)
    source = decode(item.data, "<fuzz>")
    clock(size)
    formatted = _format(source)
    clock(size)
    graph = nnef_grad.loads(source.text, **_known(nnef_grad.loads, item.options))
    if formatted is None:
        raise Broken("the formatter refuses a document that the compiler accepts")
    clock(max(size, len(graph.operations) * BYTES_OF_AN_OPERATION))
    options = _known(nnef_grad.differentiate, item.options)
    backward = nnef_grad.dumps(nnef_grad.differentiate(graph, **options))
    clock(len(backward))
    if len(backward) < LONG:
        _read_again(backward)
    clock(size)
    written = nnef_grad.dumps(graph)
    if not item.options and _read_again(formatted) != _statements(written):
        raise Broken("the canonical layout is another graph")


def _known(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """The options that a function has."""
    parameters = inspect.signature(function).parameters
    return {name: value for name, value in options.items() if name in parameters}


def _format(source: Source) -> str | None:
    """The canonical layout, which must be stable; None if the text is not a document."""
    try:
        formatted = format_text(source)
    except NnefGradError:
        return None
    try:
        if format_text(Source("<formatted>", formatted)) == formatted:
            return formatted
    except NnefGradError as error:
        raise Broken(
            f"the formatted text is not a document: {error.message}"
        ) from error
    raise Broken("the formatted text has another layout")


def _read_again(text: str) -> list[str]:
    """The statements of a text that the compiler wrote, and must be able to read."""
    try:
        written = nnef_grad.dumps(nnef_grad.loads(text))
        format_text(Source("<written>", text))
    except NnefGradError as error:
        raise Broken(f"the written text is refused: {error.message}") from error
    return _statements(written)


def _statements(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip() and "#" not in line[:5]]


# ---- The process ----


def main() -> None:
    """Answers requests until there are no more."""
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, chain=True)
    seconds = float(sys.argv[1])
    examine(make_input("warm", ["network"]))
    _limit_memory()
    for line in sys.stdin:
        print(json.dumps(reply(item_of(json.loads(line)), seconds)), flush=True)


def _limit_memory() -> None:
    """Limits the memory, beyond that of Python with all modules loaded."""
    pages = Path("/proc/self/statm").read_text().split()[0]
    limit = int(pages) * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def item_of(request: dict[str, Any]) -> Input:
    """The input of a request, which has a seed or the bytes."""
    if "seed" in request:
        return make_input(request["seed"], request["kinds"])
    return Input(request["data"].encode("latin-1"), request["options"])


def request_of(item: Input) -> dict[str, Any]:
    """The request for an input."""
    return {"data": item.data.decode("latin-1"), "options": item.options}


def reply(item: Input, seconds: float) -> dict[str, Any]:
    """The outcome of an input, with a `place` if it is a bug."""

    def clock(size: int) -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds * max(1.0, size / BYTES))

    try:
        return {"outcome": examine(item, clock), "kind": item.kind}
    except Exception as error:
        what, place = f"{type(error).__name__}: {error}"[:300], _place(error)
        name = type(error).__name__
        return {"outcome": name, "kind": item.kind, "what": what, "place": place}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _place(error: Exception) -> str:
    """The innermost function of the compiler in the traceback of the error."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    codes = [
        frame.f_code for frame in frames if "nnef_grad" in frame.f_code.co_filename
    ]
    last = codes[-1] if codes else frames[-1].f_code
    return f"{Path(last.co_filename).name}:{last.co_name}"


if __name__ == "__main__":
    main()
