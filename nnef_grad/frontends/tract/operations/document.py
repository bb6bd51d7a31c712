"""The document that an operation stands in."""

from __future__ import annotations

from typing import cast

from nnef_grad.frontends.step import Step
from nnef_grad.frontends.tract.evaluation import DocumentReading


def document(step: Step) -> DocumentReading:
    """What reads the document of an operation of tract's dialect."""
    return cast("DocumentReading", step.reading)
