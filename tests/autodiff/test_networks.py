"""Real networks: every gradient, and every reduction."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from support.checks import check_gradients
from support.networks import SMALL, network, scaled, small_network

import nnef_grad
from nnef_grad.graph.ir import Shape


# AlexNet ends in convolutions without padding over the whole of a 224 x 224 image.
@pytest.mark.parametrize(
    ("name", "image"),
    [pytest.param("alexnet", 224, marks=pytest.mark.thorough), ("resnet", 64)],
)
def test_every_gradient_agrees_with_autograd(name: str, image: int) -> None:
    check_gradients(network(name, 1, image), tolerance=1e-6, transform=scaled)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.thorough) if name == "vgg" else name
        for name in SMALL
    ],
)
def test_every_gradient_of_a_batch_agrees_with_autograd(name: str) -> None:
    check_gradients(small_network(name, batch=2), tolerance=1e-6, transform=scaled)


@pytest.mark.parametrize(
    ("name", "image"), [("alexnet", 224), ("vgg", 224), ("resnet", 224)]
)
def test_one_reduction_for_each_broadcast_operand(name: str, image: int) -> None:
    graph = nnef_grad.loads(network(name, 1, image))
    backward = nnef_grad.differentiate(graph)
    sums = [op for op in backward.graph.operations if op.name == "sum_reduce"]
    broadcast = sum(_broadcast_operands(op) for op in graph.operations)
    assert backward.reductions == broadcast
    assert len(sums) <= broadcast


@pytest.mark.parametrize("name", SMALL)
def test_no_gradient_of_a_network_is_masked_twice(name: str) -> None:
    """All slopes are finite: there is one select for each relu."""
    graph = nnef_grad.loads(network(name, 1, 224))
    emitted = nnef_grad.differentiate(graph).graph.operations
    count = Counter(op.name for op in (*graph.operations, *emitted))
    assert count["select"] == sum(op.name == "relu" for op in graph.operations)


def _broadcast_operands(operation: nnef_grad.Operation) -> int:
    """How many of an operation's tensors are repeated along an axis to fit its
    result.
    """
    names = {
        "conv": {"bias"},
        "batch_normalization": {"mean", "variance", "offset", "scale"},
    }.get(operation.name, set())
    (result,) = operation.outputs
    pairs = zip(operation.definition.operands, operation.operands, strict=True)
    tensors = [
        t
        for p, t in pairs
        if isinstance(t, nnef_grad.Tensor)
        and (p.name in names or operation.name == "add")
    ]
    return sum(_is_repeated(t.shape, result.shape) for t in tensors)


def _is_repeated(operand: Shape, result: Shape) -> bool:
    extended = operand + (1,) * (len(result) - len(operand))
    return any(o == 1 and r > 1 for o, r in zip(extended, result, strict=True))


def test_a_wrong_gradient_of_a_network_is_found() -> None:
    graph = nnef_grad.loads(small_network("resnet"))
    rules = nnef_grad.Rules()
    rule = rules.rule("batch_normalization")
    assert rule is not None
    right = rule.vjp
    assert right is not None

    @rules.vjp("batch_normalization")
    def wrong(emit: Any, operation: Any, dy: Any) -> list[Any]:
        *others, offset, scale = right(emit, operation, dy)
        return [*others, emit("mul", offset, 1.001), scale]

    backward = nnef_grad.differentiate(graph, wrt=["beta17"], rules=rules)
    (found,) = nnef_grad.check(graph, backward).gradients
    assert found.verdict == "FAILED"
