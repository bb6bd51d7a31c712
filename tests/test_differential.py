"""Our front end beside the Khronos parser, on every document of tests/language."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from language import normal
from language.documents import (
    Document,
    corpus,
    differences,
    faults,
    fragments_of,
)
from language.khronos import Answer, Khronos

import nnef_grad

PAGE = Path(__file__).parents[1] / "docs" / "differences.md"


@pytest.fixture(scope="session")
def khronos() -> Iterator[Khronos]:
    parser = Khronos()
    yield parser
    parser.close()


def ask(khronos: Khronos, text: str) -> Answer:
    """What the Khronos parser makes of a text, all fragments inlined."""
    return khronos.parse(text, fragments_of(text))


def ours(text: str) -> tuple[str, Any]:
    """Our verdict in the same words, with the graph or the message."""
    try:
        return "accepts", normal.of_ours(nnef_grad.loads(text))
    except nnef_grad.NnefGradError as error:
        return "refuses", error.message


def named(document: Document) -> Any:
    return pytest.param(document, id=document.name)


# ---- Where all agree ----


@pytest.mark.parametrize("document", [named(d) for d in corpus()])
def test_we_agree_on(khronos: Khronos, document: Document) -> None:
    verdict, found = ours(document.text)
    answer = ask(khronos, document.text)
    expected = "accepts" if document.valid else "refuses"
    assert (verdict, answer.verdict) == (expected, expected), (found, answer.message)
    if document.valid:
        assert found == normal.of_khronos(answer.graph)


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
    assert ours(document.text)[0] == ("accepts" if document.valid else "refuses")
    assert _their_verdict(khronos, document) == verdict


def _their_verdict(khronos: Khronos, document: Document) -> str:
    """What the Khronos parser does, as differences.txt says it."""
    answer = ask(khronos, document.text)
    if "bad_alloc" in answer.message:
        return "crashes"
    if answer.verdict == "accepts" and document.valid:
        assert ours(document.text)[1] != _their_graph(answer)
        return "differs"
    return answer.verdict


def _their_graph(answer: Answer) -> Any:
    try:
        return normal.of_khronos(answer.graph)
    except KeyError as missing:
        return f"tensor {missing} is not made by any operation"


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(
            document,
            id=document.name,
            marks=pytest.mark.xfail(strict=True, reason=fault.construct),
        )
        for fault in faults()
        for document in fault.documents
    ],
)
def test_we_are_wrong_on(document: Document) -> None:
    assert ours(document.text)[0] == ("accepts" if document.valid else "refuses")
