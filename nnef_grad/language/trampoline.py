"""Recursion without the recursion limit, for trees as deep as a text can make them."""

from __future__ import annotations

from collections.abc import Generator
from types import GeneratorType
from typing import Any

Step = Generator[Any, Any, Any]


def run(step: Any) -> Any:
    """Runs a computation whose parts call each other by `yield`.

    Where a function would say `value = visit(child)`, a generator says
    `value = yield visit(child)` and the call happens here, on a list in place of the
    stack. What is yielded, or returned by `visit`, may be a plain value as well: it is
    handed back as it is.

    Raises:
        Exception: what a part raises, after the parts that wait for it have seen it.
    """
    if not isinstance(step, GeneratorType):
        return step
    waiting: list[Step] = [step]
    value: Any = None
    error: Exception | None = None
    while waiting:
        try:
            part = (
                waiting[-1].send(value) if error is None else waiting[-1].throw(error)
            )
            error = None
        except StopIteration as done:
            waiting.pop()
            value, error = done.value, None
        except Exception as raised:
            waiting.pop()
            value, error = None, raised
        else:
            if isinstance(part, GeneratorType):
                waiting.append(part)
                value = None
            else:
                value = part
    if error is not None:
        raise error
    return value
