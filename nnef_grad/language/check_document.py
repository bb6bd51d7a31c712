"""The static rules of a whole document."""

from __future__ import annotations

import re

from nnef_grad.errors import Problem
from nnef_grad.language.check_definitions import check_fragments, check_graph
from nnef_grad.language.library import Library, standard, with_fragments
from nnef_grad.language.syntax import Document

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
        *_check_header(document),
        *_check_definitions(document, known),
        *check_fragments(document.fragments, library),
        *check_graph(document.graph, library),
    ]
    return sorted(problems, key=Problem.position)


def _check_header(document: Document) -> list[Problem]:
    problems: list[Problem] = []
    version = document.version
    if not _VERSION.fullmatch(version.name):
        message = f"'{version.name}' is not a version number: write 1.0"
        problems.append(Problem(message, version.span))
    elif float(version.name) > 1.0:
        message = f"version {version.name} is not supported: nnef-grad reads NNEF 1.0"
        problems.append(Problem(message, version.span))
    enabled = {e.name for e in document.extensions}
    for extension in document.extensions:
        if extension.name not in EXTENSIONS:
            message = f"extension '{extension.name}' is not supported"
            problems.append(Problem(message, extension.span))
    if document.fragments and FRAGMENTS_EXTENSION not in enabled:
        message = (
            f"a fragment definition needs the line: extension {FRAGMENTS_EXTENSION};"
        )
        problems.append(Problem(message, document.fragments[0].span))
    if document.operators is not None and OPERATORS_EXTENSION not in enabled:
        message = (
            f"an operator expression needs the line: extension {OPERATORS_EXTENSION};"
        )
        problems.append(Problem(message, document.operators))
    return problems


def _check_definitions(document: Document, known: Library) -> list[Problem]:
    """Fragments and the graph must have unique names, and agree with the rules."""
    problems: list[Problem] = []
    taken = set(standard())
    definitions = [(f.name, f.span) for f in document.fragments]
    for name, span in [*definitions, (document.graph.name, document.graph.span)]:
        if name in taken:
            problems.append(Problem(f"operation '{name}' is already defined", span))
        taken.add(name)
    for fragment in document.fragments:
        if fragment.name not in standard() and (
            known.get(fragment.name, fragment) != fragment
        ):
            message = f"the rules declare '{fragment.name}' differently"
            problems.append(Problem(message, fragment.span))
    return problems
