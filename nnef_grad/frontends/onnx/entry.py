"""From the path of an ONNX file to its graph."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nnef_grad.base.errors import NnefGradError, UsageError, is_bug
from nnef_grad.base.public import public
from nnef_grad.emit.bodies import LONGEST
from nnef_grad.frontends.onnx.model import Model
from nnef_grad.storage.files import PathLike, reading


@public
def from_onnx(
    path: PathLike,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    symbols: Mapping[str, int] | None = None,
    constants: Mapping[str, Any] | None = None,
    unroll: int = LONGEST,
) -> Model:
    """The graph of an ONNX file. Inputs, outputs and variables keep their names, as far
    as NNEF allows; labels of variables are their names in the file.

    Needs the package `onnx`. Open extents become symbols with their names in the file,
    or named after the input and its axis. Computations on shapes and constants are
    folded, branches are taken, and short loops are unrolled. Initializers without axes
    become numbers without gradients. Warnings of the graph name these, variables that
    look like statistics or masks, and parameters that an exporter may have merged.

    Args:
        path: the file. Its external data are files in its folder.
        input_shapes: shapes of inputs, by their names in the file.
        batch: the first extent of all inputs.
        symbols: numbers of symbols, by name.
        constants: arrays for inputs that become constants, by their names in the file, or
            a number for all elements of one. What follows from constants alone is
            computed here, conditions among it.
        unroll: the most steps of a loop or a recurrent layer to unroll. Longer ones stay
            loops, which ONNX and tract run.

    Raises:
        UsageError: the file cannot be read, or shapes or symbols do not fit.
        UnsupportedError: an operation or a setting cannot be converted.
    """
    require_onnx()
    from nnef_grad.frontends.onnx import graph

    model, arrays = _load(path)
    given = graph.Given(
        input_shapes or {}, batch, symbols or {}, constants or {}, unroll
    )
    with _blaming(path):
        return graph.read(model, arrays, os.fspath(path), given)


def require_onnx() -> None:
    """Raises `UsageError` if onnx is missing."""
    if find_spec("onnx") is None:
        message = "ONNX files need the package onnx: pip install onnx"
        raise UsageError(message)


@contextmanager
def _blaming(path: PathLike) -> Iterator[None]:
    """Turns an error that nobody foresaw into one of the user, if the file is not valid."""
    from nnef_grad.frontends.onnx.validity import fault_of_model

    name = os.fspath(path)
    try:
        yield
    except (NnefGradError, MemoryError):
        raise
    except RecursionError:
        raise UsageError(f"'{name}' is nested too deeply") from None
    except Exception as error:
        if not (fault := fault_of_model(_load(path)[0])):
            raise
        raise UsageError(f"'{name}' is not valid: {fault}") from error


def _load(path: PathLike) -> Any:
    from nnef_grad.frontends.onnx import storage

    name = os.fspath(path)
    with reading(path):
        try:
            return storage.load(Path(path))
        except (OSError, UsageError):
            raise
        except Exception as error:
            if is_bug(error):
                raise
            # Protocol buffers and external weights have errors of their own.
            lines = map(str.strip, str(error).splitlines())
            reason = "; ".join(filter(None, lines)) or type(error).__name__
            message = f"'{name}' cannot be read as an ONNX file: {reason}"
            raise UsageError(message) from None
