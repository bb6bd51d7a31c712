"""How others refuse, as errors of our own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from nnef_grad.errors import NnefGradError, Problem, UnsupportedError, UsageError

# A line of nnef_tools that counts what comes after it.
_HEADING = re.compile(r"Found \d+ operator")


def require_onnx() -> None:
    """Raises `UsageError` without the package, which nnef_tools does not bring along."""
    try:
        import_module("onnx")
    except ImportError:
        message = "ONNX files want the package onnx: pip install nnef-grad[onnx]"
        raise UsageError(message) from None


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """nnef_tools and onnx refuse by many kinds of exceptions: they become one, and so
    does an error in the graph that nnef_tools makes. What the system refuses stays.
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
    """The message of an exception, in one line."""
    lines = (line.strip() for line in str(error).splitlines())
    kept = [line for line in lines if line and not _HEADING.match(line)]
    return "; ".join(kept) or type(error).__name__
