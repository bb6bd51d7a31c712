"""What the compiler makes of a graph: its gradients against torch's."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nnef_grad
from support.checks import check_gradients, check_twice

from .graphs import RandomGraph

TOLERANCE = 1e-6
PASSED, SKIPPED = "passed", "no derivative"


@dataclass(frozen=True)
class Outcome:
    """What became of a graph.

    Attributes:
        kind: `PASSED`, `SKIPPED`, or where and how it failed.
        message: what was said.
        error: the largest relative error.
    """

    kind: str
    message: str = ""
    error: float = 0.0

    @property
    def failed(self) -> bool:
        return self.kind not in (PASSED, SKIPPED)


def compare(graph: RandomGraph, twice: bool = False, **options: Any) -> Outcome:
    """Compares the gradients of a graph, and those of its backward graph if it is to be
    differentiated twice.
    """
    check = check_twice if twice else check_gradients
    try:
        checked = check(
            graph.text,
            feeds=graph.feeds,
            variables=graph.variables,
            tolerance=TOLERANCE,
            # The shape inference of the Khronos parser does not know all borders,
            # biases and indices; what is evaluated has the shapes that were inferred.
            shapes=False,
            **{**graph.options, **options},
        )
    except nnef_grad.NoDerivativeError as error:
        return Outcome(SKIPPED, error.message)
    except Exception as error:
        return Outcome(_kind(error), str(error))
    return Outcome(PASSED, error=checked.error)


def _kind(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {Path(frame.filename).name}: {frame.name}"
