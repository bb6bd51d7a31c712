"""How others refuse, told as our own errors are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from nnef_grad.errors import NnefGradError, Problem, UnsupportedError, UsageError


def require_onnx() -> None:
    """Raises `UsageError` without the package, which nnef_tools does not bring along."""
    try:
        import_module("onnx")
    except ImportError:
        message = "ONNX files want the package onnx: pip install nnef-grad[onnx]"
        raise UsageError(message) from None


# What stands before what it says, and tells no more.
_HEADING = re.compile(r"Found \d+ operator")


@contextmanager
def refused(what: str) -> Iterator[None]:
    """What nnef_tools does not do it says by many kinds of exceptions. What is wrong
    with the graph that it makes is its doing, and told as found there. What the system
    refuses is none of its doing.
    """
    try:
        yield
    except (UsageError, UnsupportedError, OSError):
        raise
    except NnefGradError as error:
        first = Problem(f"{what}: what it makes is no valid graph")
        raise UnsupportedError.collect([first, *error.problems]) from None
    except Exception as error:
        raise UnsupportedError(f"{what}: {reason(error)}") from error


def reason(error: Exception) -> str:
    """What nnef_tools says, in one line."""
    lines = [
        line.strip() for line in str(error).splitlines() if not _HEADING.match(line)
    ]
    return "; ".join(filter(None, lines)) or type(error).__name__
