"""Results that nothing but slices reads, in tract."""

from __future__ import annotations

import pytest
from support.checks import document
from support.runtimes import needs
from support.runtimes.cases import Case
from support.runtimes.matrix import Example, verdicts

import nnef_grad
from nnef_grad.interpreter.random_values import random_values

X = "x = external(shape = [2, 6, 3, 4]);\ns = sin(x);\n"
LOWER = "a = slice(s, axes = [1], begin = [0], end = [4]);\n"
UPPER = "b = slice(s, axes = [1], begin = [-2], end = [0]);\n"
DIVIDED = document(X + LOWER + UPPER, outputs="a, b")


def lines(text: str) -> list[str]:
    """The statements of a document for tract that reshape and slice."""
    lowered = nnef_grad.lower(nnef_grad.loads(text), "tract")
    found = (line.strip() for line in nnef_grad.dumps(lowered.graph).splitlines())
    return [line for line in found if " = reshape(" in line or " = slice(" in line]


def test_parts_are_taken_of_flat_elements() -> None:
    assert lines(DIVIDED) == [
        "s_flat = reshape(s, shape = [2, 72]);",
        "a_flat = slice(s_flat, axes = [1], begin = [0], end = [48]);",
        "a = reshape(a_flat, shape = [2, 4, 3, 4]);",
        "b_flat = slice(s_flat, axes = [1], begin = [48], end = [72]);",
        "b = reshape(b_flat, shape = [2, 2, 3, 4]);",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (UPPER, "b = cos(s);\n"),
        (UPPER, "b = slice(s, axes = [2], begin = [1], end = [2]);\n"),
        (
            UPPER,
            "b = slice(s, axes = [1], begin = [0], end = [6], stride = [2]);\n",
        ),
        ("a, b", "a, b, s"),
        ("s = sin(x)", "s = max_pool(x, size = [1, 1, 3, 3])"),
        (X, "s = external(shape = [2, 6, 3, 4]);\n"),
        ("axes = [1]", "axes = [3]"),
    ],
)
def test_other_slices_stay(old: str, new: str) -> None:
    text = DIVIDED.replace(old, new)
    if "external(shape = [2, 6, 3, 4]);\na" in text:
        text = text.replace("net( x )", "net( s )")
    assert not [line for line in lines(text) if "reshape" in line]


@pytest.mark.parametrize(
    "text",
    [
        DIVIDED,
        DIVIDED.replace("b = ", "c = ").replace(
            "\n}",
            "\nb = slice(c, axes = [3], begin = [3], end = [1], stride = [-1]);\n}",
        ),
        DIVIDED.replace("axes = [1]", "axes = [0]").replace("[4]", "[1]"),
    ],
)
def test_tract_computes_the_same(text: str) -> None:
    needs("tract")
    graph = nnef_grad.loads(text)
    for made in (graph, nnef_grad.differentiate(graph).graph):
        values = random_values(made, seed=1)
        lowered = nnef_grad.lower(made, "tract")
        case = Case(nnef_grad.dumps(lowered.graph), values.inputs, values.variables)
        expected = nnef_grad.evaluate(made, values.inputs, values.variables)
        (verdict,) = verdicts("tract", {"divided": Example(case, expected)}).values()
        assert verdict.word == "ok", verdict
