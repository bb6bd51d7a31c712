"""What the compiler has written, read again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import nnef_grad
from fuzz.broken import Broken
from nnef_grad.base.errors import NnefGradError
from nnef_grad.base.source import Source
from nnef_grad.graph.ir import Graph
from nnef_grad.language.format import format_text

# The output may be much longer than the input; then it is not read again.
LONG = 2_000_000


def read_again(text: str, **options: Any) -> list[str]:
    """The statements of a text that the compiler wrote, and must be able to read."""
    try:
        written = text_of_graph(nnef_grad.loads(text, **options))
        format_text(Source("<written>", text))
    except NnefGradError as error:
        raise Broken("the written text is refused", error.message) from error
    return statements(written)


def text_of_graph(graph: Graph) -> str:
    """Its text in the standard: what is written for tract only computes the same."""
    return nnef_grad.dumps(replace(graph, dialect=""))


def statements(text: str) -> list[str]:
    """The lines of a text, without comments."""
    return [line for line in text.split("\n") if line.strip() and "#" not in line[:5]]
