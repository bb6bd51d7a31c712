"""A process that compiles input after input, within limits of time and memory.

Requests are lines of JSON on stdin, replies are lines on stdout. A process that runs out
of processor time is killed by SIGPROF, and prints its stack on stderr; wall-clock time
would blame innocent inputs on a busy machine.
"""

from __future__ import annotations

import faulthandler
import inspect
import json
import signal
import sys
import traceback
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import nnef_grad
from fuzz.broken import ACCEPTED, Broken, OverBudget, place_in
from fuzz.budget import BYTES_OF_AN_OPERATION, memory_for
from fuzz.changed import examine_changed
from fuzz.clock import Clock
from fuzz.commands import examine_command
from fuzz.inputs import Input
from fuzz.kinds import make_input
from fuzz.processes import limit_memory, unlimit_memory
from fuzz.trained import examine_step
from fuzz.unrolled import examine_loop
from fuzz.written import LONG, read_again, statements, text_of_graph
from nnef_grad.base.errors import NnefGradError
from nnef_grad.base.source import Source
from nnef_grad.language.format import format_text
from nnef_grad.storage.files import text_of

# ---- The property ----


def examine(item: Input, clock: Clock | None = None) -> str:
    """The outcome of an input: `accepted`, or the class of its error. The clock is
    restarted at each timed step, with the size of its input.

    Raises:
        Exception: it is neither, which is a bug in the compiler.
    """
    clock = clock or Clock(running=False)
    if item.command is not None:
        outcome, clock.most = examine_command(item, item.command)
        return outcome
    try:
        _EXAMINATIONS.get(item.subject, _compile)(item, clock)
    except NnefGradError as error:
        # An error shows the whole chain of calls, which may be long.
        _ = str(error)
        return type(error).__name__
    return ACCEPTED


def _compile(item: Input, clock: Clock) -> None:
    size = len(item.data)
    source = text_of(BytesIO(item.data), "<fuzz>")
    clock(size)
    formatted = _format(source)
    clock(size)
    graph = nnef_grad.loads(source.text, **_known(nnef_grad.loads, item.options))
    if formatted is None:
        raise Broken("the formatter refuses a document that the compiler accepts")
    # A short document may stand for many operations, or for one of many operands.
    steps = sum(1 + len(operation.inputs) for operation in graph.operations)
    clock(max(size, steps * BYTES_OF_AN_OPERATION))
    options = _known(nnef_grad.differentiate, item.options)
    backward = nnef_grad.dumps(nnef_grad.differentiate(graph, **options))
    clock(len(backward))
    if len(backward) < LONG:
        read_again(backward)
    clock(size)
    written = text_of_graph(graph)
    if not item.options and read_again(formatted) != statements(written):
        raise Broken("the canonical layout is another graph")


# What has more to it than the properties of all documents.
_EXAMINATIONS: dict[str, Callable[[Input, Clock], None]] = {
    "step": examine_step,
    "loop": examine_loop,
    "changed": examine_changed,
}


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
        raise Broken("the formatted text is not a document", error.message) from error
    raise Broken("the formatted text has another layout")


# ---- The process ----


def main() -> None:
    """Answers requests until there are no more."""
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, chain=True)
    faulthandler.register(signal.SIGALRM, chain=True)
    for kind in ("network", "check", "step", "loop", "mutated"):
        examine(make_input("warm", [kind]))
    for line in sys.stdin:
        print(json.dumps(reply(item_of(json.loads(line)))), flush=True)


def item_of(request: dict[str, Any]) -> Input:
    """The input of a request, which has a seed or the bytes."""
    if "seed" in request:
        return make_input(request["seed"], request["kinds"])
    return Input(request["data"].encode("latin-1"), request["options"])


def request_of(item: Input) -> dict[str, Any]:
    """The request for an input."""
    return {"data": item.data.decode("latin-1"), "options": item.options}


def reply(item: Input) -> dict[str, Any]:
    """The outcome of an input, with a `place` if it is a bug, and the part of the budget
    that it took.
    """
    clock = Clock()
    if item.command is None:
        # What is also run takes the memory of a check.
        is_run = item.subject in _EXAMINATIONS
        limit_memory(memory_for(len(item.data), check=is_run))
    try:
        found = {"outcome": examine(item, clock)}
    except Exception as error:
        found = _bug(error)
    finally:
        clock.stop()
        unlimit_memory()
    return {**found, "kind": item.kind, "taken": round(clock.most, 3)}


def _bug(error: Exception) -> dict[str, str]:
    what = f"{type(error).__name__}: {error}"[:1000]
    if isinstance(error, OverBudget):
        outcome = "Hang" if error.is_hang else "Crash"
        return {"outcome": outcome, "what": what, "place": place_in(error.trace)}
    place = error.what if isinstance(error, Broken) else _place(error)
    return {"outcome": type(error).__name__, "what": what, "place": place}


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
