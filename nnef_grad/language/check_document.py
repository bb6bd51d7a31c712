"""The static rules of a whole document."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nnef_grad.base.errors import Problem
from nnef_grad.language.check_definitions import check_fragments, check_graph
from nnef_grad.language.library import Library, standard, with_fragments
from nnef_grad.language.syntax import Document, Named

FRAGMENTS_EXTENSION = "KHR_enable_fragment_definitions"
OPERATORS_EXTENSION = "KHR_enable_operator_expressions"
EXTENSIONS = (FRAGMENTS_EXTENSION, OPERATORS_EXTENSION)

_VERSION = re.compile(r"[0-9]+\.[0-9]*")


def check_document(document: Document, known: Library) -> list[Problem]:
    """The problems of a document.

    Args:
        document: the document.
        known: the operations of the standard, and those that rules declare: a document
            must declare them in the same way.
    """
    library = with_fragments(document.fragments)
    problems = [
        *_header_problems(document),
        *_definition_problems(document, known),
        *check_fragments(document.fragments, library),
        *check_graph(document.graph, library),
    ]
    return sorted(problems, key=Problem.position)


def version_problems(document: Document) -> Iterator[Problem]:
    """The problems of the version, if it has any."""
    version = document.version
    if not _VERSION.fullmatch(version.name):
        message = f"'{version.name}' is not a version number: write 1.0"
        yield Problem(message, version.span)
    elif float(version.name) > 1.0:
        message = f"version {version.name} is not supported: nnef-grad reads NNEF 1.0"
        yield Problem(message, version.span)


def _header_problems(document: Document) -> Iterator[Problem]:
    yield from version_problems(document)
    enabled = {e.name for e in document.extensions}
    for extension in document.extensions:
        if extension.name not in EXTENSIONS:
            message = f"extension '{extension.name}' is not supported"
            yield Problem(message, extension.span)
    line = "needs the line: extension"
    if document.fragments and FRAGMENTS_EXTENSION not in enabled:
        message = f"a fragment definition {line} {FRAGMENTS_EXTENSION};"
        yield Problem(message, document.fragments[0].span)
    if document.operators is not None and OPERATORS_EXTENSION not in enabled:
        message = f"an operator expression {line} {OPERATORS_EXTENSION};"
        yield Problem(message, document.operators)


def _definition_problems(document: Document, known: Library) -> Iterator[Problem]:
    """Fragments and the graph must have unique names, and agree with the rules."""
    taken = set(standard())
    parts: tuple[Named, ...] = (*document.fragments, document.graph)
    for part in parts:
        if part.name in taken:
            yield Problem(f"operation '{part.name}' is already defined", part.span)
        taken.add(part.name)
    for fragment in document.fragments:
        is_ours = fragment.name not in standard()
        if is_ours and known.get(fragment.name, fragment) != fragment:
            message = f"the rules declare '{fragment.name}' differently"
            yield Problem(message, fragment.span)
