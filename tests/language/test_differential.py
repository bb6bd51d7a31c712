"""Our front end beside the Khronos parser, on every document of support/documents."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from support.documents import generate, normal
from support.documents.corpus import (
    Document,
    corpus,
    differences,
    fragments_of,
)
from support.documents.khronos import Answer, Khronos

import nnef_grad
from nnef_grad.language.library import STDLIB

VERDICTS = ("accepts", "refuses", "crashes", "differs", "likewise")


@pytest.fixture(scope="session")
def khronos() -> Iterator[Khronos]:
    parser = Khronos()
    yield parser
    parser.close()


def ask(khronos: Khronos, document: Document) -> Answer:
    """What the Khronos parser makes of a document, all fragments inlined.

    Its shape inference is wrong on some of what compound operations expand to.
    """
    lowered = [*fragments_of(document.text), *document.expanded]
    return khronos.parse(document.text, lowered, shapes=has_shapes(document))


def has_shapes(document: Document) -> bool:
    """Whether the shapes of a document are compared."""
    return document.inferred and not document.expanded


def ours(document: Document) -> tuple[str, Any]:
    """Our verdict in the same words, with the graph or the message."""
    try:
        graph = nnef_grad.loads(document.text, expand=document.expanded)
    except nnef_grad.NnefGradError as error:
        return "refuses", error.message
    return "accepts", normal.of_ours(graph, shapes=has_shapes(document))


def verdict_of(document: Document) -> str:
    return "accepts" if document.valid else "refuses"


# ---- Where all agree ----


@pytest.mark.parametrize("document", [pytest.param(d, id=d.name) for d in corpus()])
def test_we_agree_on(khronos: Khronos, document: Document) -> None:
    agree(khronos, document)


def agree(khronos: Khronos, document: Document) -> None:
    """Asserts equal verdicts and equal graphs."""
    (verdict, found), answer = ours(document), ask(khronos, document)
    wanted = verdict_of(document)
    assert (verdict, answer.verdict) == (wanted, wanted), (found, answer.message)
    if document.valid:
        assert found == normal.of_khronos(answer.graph)


COMPOUNDS = tuple(name for name in STDLIB if STDLIB[name].body is not None)


@pytest.mark.parametrize(
    "document", [pytest.param(d, id=d.name) for d in corpus() if d.expanded]
)
def test_we_agree_down_to_primitives_on(khronos: Khronos, document: Document) -> None:
    agree(khronos, replace(document, expanded=COMPOUNDS))


def test_every_compound_operation_is_in_a_document() -> None:
    documents = [*corpus(), *(d for group in differences() for d in group.documents)]
    assert {name for d in documents for name in d.expanded} == set(COMPOUNDS)
    assert len(COMPOUNDS) == 46


def test_no_document_stands_twice() -> None:
    groups = differences()
    documents = [*corpus(), *(d for group in groups for d in group.documents)]
    texts = Counter((d.text, d.expanded) for d in documents)
    assert [text for (text, _), count in texts.items() if count > 1] == []
    assert len(texts) > 400


@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("kind", [generate.flat, generate.compositional])
def test_we_agree_on_a_random_document(
    khronos: Khronos, kind: Callable[[int], str], seed: int
) -> None:
    agree(khronos, generate.random_document(kind(seed)))


# ---- Where the parsers do not agree ----


@pytest.mark.parametrize(
    ("verdict", "document"),
    [
        pytest.param(difference.verdict, document, id=document.name)
        for difference in differences()
        for document in difference.documents
    ],
)
def test_we_differ_on(khronos: Khronos, verdict: str, document: Document) -> None:
    assert ours(document)[0] == verdict_of(document)
    assert their_verdict(khronos, document) == verdict


def their_verdict(khronos: Khronos, document: Document) -> str:
    """What the Khronos parser does, as differences.txt says it."""
    answer = ask(khronos, document)
    if "bad_alloc" in answer.message:
        return "crashes"
    if answer.verdict == "accepts" and document.valid:
        equal = ours(document)[1] == their_graph(answer)
        return "likewise" if equal else "differs"
    return answer.verdict


def their_graph(answer: Answer) -> Any:
    try:
        return normal.of_khronos(answer.graph)
    except KeyError as missing:
        return f"no operation makes {missing}"


# What differs in a mutated document, by the message of the one who refuses it.
EXPLAINED = {
    r"Khronos: .*expected token ';', found 'identifier'":
        "several extensions in one statement",
    r"Khronos: .*unexpected token '\+'": "the sign +",
    r"Khronos: .*(and '\[\]'|'\[\]' and '.*\[\]') for operation '\+'":
        "an empty array beside another one",
    r"Khronos: .*'add_n.*shapes of values must be identical":
        "terms of add_n that broadcast",
    r"Khronos: signal .*; ours: .*unexpected": "a call as a target",
    r"ours: an operator expression needs the line":
        "operator expressions in a document that does not enable them",
    r"ours: .*extents must be positive": "extents that are not positive",
    r"ours: .*values do not fill the shape": "values that do not fill a constant",
    r"ours: .*must differ": "an axis that is named twice",
    r"ours: '..?' does not apply to": "a comparison of types without a common type",
    r"ours: 'in' does not apply to": "membership in an array of another type",
    r"ours: the items of an array must be of one type":
        "a default value whose items have several types",
    r"ours: .*must be a tensor, but this is|ours: .*is one name for":
        "a name for a number, an array or a tuple in the graph",
}  # fmt: skip


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("kind", [generate.flat, generate.compositional])
def test_verdicts_on_mutations(
    khronos: Khronos, kind: Callable[[int], str], seed: int
) -> None:
    # Who infers no shapes does not see that one does not fit.
    documents = map(generate.random_document, map(kind, itertools.count(1000 * seed)))
    whole = next(document for document in documents if document.inferred)
    for text in generate.mutations(whole.text, seed, count=6):
        document = generate.random_document(text, valid=False)
        (verdict, found), answer = ours(document), ask(khronos, document)
        if verdict != answer.verdict:
            assert explanation(verdict, found, answer) is not None, text


def explanation(verdict: str, found: Any, answer: Answer) -> str | None:
    """The difference that explains unequal verdicts, or None."""
    message = f"Khronos: {answer.message}; " if answer.message else ""
    message += f"ours: {found}" if verdict == "refuses" else ""
    return next((v for k, v in EXPLAINED.items() if re.search(k, message)), None)


def test_what_explains_a_mutation_is_a_difference() -> None:
    known = {group.construct for group in differences()}
    assert set(EXPLAINED.values()) <= known


def test_each_difference_is_said_in_full() -> None:
    for difference in differences():
        assert difference.verdict in VERDICTS
        assert all((difference.khronos, difference.ours, difference.why))
        assert difference.documents
