"""The document that an operation stands in."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from nnef_grad.frontends.step import Step

if TYPE_CHECKING:
    from nnef_grad.frontends.tract.evaluation import DocumentReading


def document(step: Step) -> DocumentReading:
    """What reads the document of an operation of tract's dialect."""
    return cast("DocumentReading", step.reading)
