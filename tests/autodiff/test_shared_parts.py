"""Concatenations that begin with all parts of an earlier one."""

from __future__ import annotations

import pytest
from support.checks import check_gradients, document

import nnef_grad

DENSE = document(
    """
    x = external(shape = [1, 2]);
    w = variable(shape = [3, 2], label = 'w');
    v = variable(shape = [4, 5], label = 'v');
    a = linear(x, w);
    first = concat([x, a], axis = 1);
    t = tanh(first);
    b = linear(t, v);
    second = concat([x, a, b], axis = 1);
    c = sin(second);
    y = concat([x, a, b, c], axis = 1);
    """
)


def slices(text: str, **options: object) -> list[str]:
    """The sections that the backward graph of a document takes of gradients."""
    backward = nnef_grad.differentiate(nnef_grad.loads(text), **options)  # type: ignore[arg-type]
    lines = nnef_grad.dumps(backward).splitlines()
    return [line.strip() for line in lines if " = slice(" in line]


def test_the_gradient_of_what_is_joined_is_divided_once() -> None:
    assert slices(DENSE) == [
        "grad_second_from_y = slice(grad_y, axes = [1], begin = [0], end = [9]);",
        "grad_c = slice(grad_y, axes = [1], begin = [9], end = [18]);",
        "grad_first_from_second = slice(grad_second, axes = [1], begin = [0], end = [5]);",
        "grad_b = slice(grad_second, axes = [1], begin = [5], end = [9]);",
        "grad_x_from_first = slice(grad_first, axes = [1], begin = [0], end = [2]);",
        "grad_a = slice(grad_first, axes = [1], begin = [2], end = [5]);",
    ]


@pytest.mark.parametrize("layers", [2, 5, 9])
def test_operations_grow_with_the_layers_and_not_with_their_pairs(layers: int) -> None:
    names = [f"t{number}" for number in range(layers)]
    body = "x = external(shape = [1, 4]);\nt0 = sin(x);\ny0 = sin(t0);\n"
    for number in range(1, layers):
        joined = f"[{', '.join(names[: number + 1])}]"
        body += f"t{number} = cos(y{number - 1});\n"
        body += f"y{number} = concat({joined}, axis = 1);\n"
    assert len(slices(document(body, outputs=f"y{layers - 1}"))) == 2 * (layers - 1)


@pytest.mark.parametrize(
    "wrt", ["all", ["first"], ["second", "x"], ["a"], ["first", "second", "b"]], ids=str
)
def test_gradients_are_those_of_torch(wrt: str | list[str]) -> None:
    """The gradient of a tensor that the user named is that of its own uses."""
    check_gradients(DENSE, wrt=wrt)


@pytest.mark.parametrize("stop", [["first"], ["b"], ["first", "second"]], ids=str)
def test_what_is_stopped_lets_other_uses_through(stop: list[str]) -> None:
    graph = nnef_grad.loads(DENSE)
    backward = nnef_grad.differentiate(graph, stop=stop)
    assert nnef_grad.check(graph, backward).passed
    assert "x" in backward.gradients


def test_other_axes_and_other_parts_share_nothing() -> None:
    parts = "[x, s]", "[x, s, x]", "[s, x, s]"
    body = "x = external(shape = [2, 2]);\ns = sin(x);\n"
    for axes, count in (((1, 1, 1), 7), ((1, 0, 1), 8)):
        lines = [
            f"j{number} = concat({joined}, axis = {axis});\nm{number} = sum_reduce(j{number}, axes = [0, 1]);\n"
            for number, (joined, axis) in enumerate(zip(parts, axes, strict=True))
        ]
        text = document(body + "".join(lines) + "y = add_n([m0, m1, m2]);")
        check_gradients(text)
        # The gradient of a sum is one tensor, whose sections are alike.
        assert len(slices(text)) <= count


def test_a_rule_of_the_user_sees_the_concatenation_as_it_is() -> None:
    own, seen = nnef_grad.Rules(), []

    @own.vjp("concat")
    def concat_vjp(emit: object, operation: nnef_grad.Operation, dy: object) -> object:
        seen.append(len(operation.inputs))
        return [[None] * len(operation.inputs)]

    slices(DENSE, rules=own)
    assert seen == [4]
