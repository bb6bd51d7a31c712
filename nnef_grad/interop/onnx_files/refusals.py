"""Errors of nnef_tools and onnx, translated to those of nnef-grad."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from nnef_grad.errors import NnefGradError, Problem, UnsupportedError, UsageError

# A line of nnef_tools that counts the messages after it.
_HEADING = re.compile(r"Found \d+ operator")


def require_onnx() -> None:
    """Raises `UsageError` if onnx, which nnef_tools does not need, is missing."""
    if find_spec("onnx") is None:
        message = "ONNX files need the package onnx: pip install nnef-grad[onnx]"
        raise UsageError(message)


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Turns the various exceptions of nnef_tools and onnx, and errors in the graphs
    that nnef_tools makes, into an `UnsupportedError`. Errors of the system are kept.
    """
    try:
        yield
    except (UsageError, UnsupportedError, OSError):
        raise
    except NnefGradError as error:
        first = Problem(f"{what}: its result is not a valid graph")
        raise UnsupportedError.collect([first, *error.problems]) from None
    except Exception as error:
        raise UnsupportedError(f"{what}: {reason(error)}") from error


def reason(error: Exception) -> str:
    """The message of an exception, on one line."""
    lines = (line.strip() for line in str(error).splitlines())
    kept = [line for line in lines if line and not _HEADING.match(line)]
    return "; ".join(kept) or type(error).__name__
