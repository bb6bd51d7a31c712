"""The document that an operation stands in."""

from __future__ import annotations

from typing import cast

from nnef_grad.frontends.step import Step
from nnef_grad.frontends.tract.evaluation import DocumentReading


def document(step: Step) -> DocumentReading:
    """The reading of the document in which an operation stands."""
    return cast("DocumentReading", step.reading)
