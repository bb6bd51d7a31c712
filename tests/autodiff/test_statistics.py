"""The static costs of graphs: by hand, of real networks, and against torch."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path

import pytest
from support import torch_memory
from support.checks import document
from support.networks import network
from support.operation_models import Model, models
from torch.utils.flop_counter import FlopCounterMode

import nnef_grad
from nnef_grad.graph.ir import map_tensors
from nnef_grad.ops.costs import byte_size, memory_alive, multiply_adds
from nnef_grad.ops.traits import UNIQUE

NETWORKS = ("alexnet", "vgg", "resnet")
WRT = ("inputs", "variables", "all")


# ---- By hand ----

# Bytes: x 24, w 48, a 32, b 32 (a view of a), c 32, d 4, y 4.
SMALL = document(
    """
    x = external(shape = [2,3]);
    w = variable(shape = [3,4], label = 'w');
    a = matmul(x, w);
    b = reshape(a, shape = [8]);
    c = exp(b);
    d = sum_reduce(c, axes = [0]);
    y = neg(d);
    """
)


def test_statistics_by_hand() -> None:
    found = nnef_grad.statistics(nnef_grad.loads(SMALL))
    alive = {cost.result: cost.bytes_alive for cost in found.by_operation}
    assert alive == {"a": 32, "b": 32, "c": 64, "d": 36, "y": 8}
    adds = {cost.result: cost.multiply_adds for cost in found.by_operation}
    assert adds == {"a": 24, "b": 0, "c": 0, "d": 8, "y": 0}
    assert replace(found, by_operation=()) == nnef_grad.Statistics(
        name="net",
        operations=7,
        parameters=12,
        multiply_adds=32,
        input_bytes=24,
        variable_bytes=48,
        activation_bytes=32 + 32 + 4 + 4,
        peak_bytes=64,
        by_operation=(),
    )


def test_outputs_are_kept_and_views_keep_what_they_show() -> None:
    body = "x = external(shape = [8]);\na = exp(x);\nu = reshape(a, shape = [8,1]);\nv = squeeze(u, axes = [1]);\nb = exp(x);\ny = exp(b);"
    alive = {
        outputs: [
            cost.bytes_alive
            for cost in nnef_grad.statistics(
                nnef_grad.loads(document(body, outputs=outputs))
            ).by_operation
        ]
        for outputs in ("y", "y, v")
    }
    assert alive == {"y": [32, 32, 32, 32, 64], "y, v": [32, 32, 32, 64, 96]}


def test_a_view_of_an_input_takes_no_memory() -> None:
    body = "x = external(shape = [8]);\nv = reshape(x, shape = [2,4]);\ny = exp(v);"
    found = nnef_grad.statistics(nnef_grad.loads(document(body)))
    assert (found.activation_bytes, found.peak_bytes) == (32, 32)


def test_the_memory_of_a_check_drops_outputs_too() -> None:
    body = "x = external(shape = [8]);\na = exp(x);\ny = exp(x);"
    graph = nnef_grad.loads(document(body, outputs="a, y"))
    assert memory_alive(graph, byte_size) == [0, 32, 32]
    assert memory_alive(graph, byte_size, graph.outputs) == [0, 32, 64]


def test_operations_without_known_costs_are_named() -> None:
    declared = "fragment swish( x: tensor<scalar> ) -> ( y: tensor<scalar> );\n"
    shape = declared.replace("swish", "swish_shape").replace(";", "{ y = copy(x); }")
    rules = nnef_grad.loads_rules(declared + shape)
    text = document("x = external(shape = [8]);\ny = swish(x);")
    extension = "extension KHR_enable_fragment_definitions;\n"
    text = text.replace("graph", f"{extension}{declared}graph", 1)
    found = nnef_grad.statistics(nnef_grad.loads(text, rules=rules))
    assert found.uncounted == ("swish",)
    assert str(found).endswith("net: the costs of swish are not known")


def test_the_table() -> None:
    assert str(nnef_grad.statistics(nnef_grad.loads(SMALL))) == "\n".join(
        [
            "                      net",
            "operations              7",
            "parameters             12",
            "multiply-adds          32",
            "inputs               24 B",
            "variables            48 B",
            "activations          72 B",
            "peak of activations  64 B",
        ]
    )


# ---- Real networks ----


# VGG-19 has 19.6 G multiply-adds and 143 667 240 parameters in the literature.
@pytest.mark.parametrize(
    ("name", "parameters", "adds"),
    [
        ("alexnet", 50_303_912, 736_555_776),
        ("vgg", 143_667_240, 19_632_062_464),
        ("resnet", 25_575_976, 3_464_624_128),
    ],
)
def test_a_network(name: str, parameters: int, adds: int) -> None:
    found = nnef_grad.statistics(nnef_grad.loads(network(name, 1, 224)))
    assert (found.parameters, found.multiply_adds) == (parameters, adds)


@pytest.mark.parametrize("wrt", WRT)
@pytest.mark.parametrize("name", NETWORKS)
def test_one_product_for_each_gradient(name: str, wrt: str) -> None:
    """Torch computes the forward product of each layer and one for each gradient, the
    output of the network too, which no gradient needs.
    """
    graph = nnef_grad.loads(network(name, 1, 224))
    backward = nnef_grad.differentiate(graph, wrt=wrt)
    with FlopCounterMode(display=False) as counter:
        torch_memory.peak_bytes(graph, backward.gradients)
    least = counter.get_total_flops() // 2 - multiply_adds(graph.operations[-1])
    assert nnef_grad.statistics(backward).multiply_adds <= 1.02 * least


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("wrt", WRT)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_peak_of_memory_is_near_that_of_torch(
    name: str, wrt: str, batch: int
) -> None:
    graph = nnef_grad.loads(network(name, batch, 224))
    backward = nnef_grad.differentiate(graph, wrt=wrt)
    peak = torch_memory.peak_bytes(graph, backward.gradients)
    assert nnef_grad.statistics(backward).peak_bytes <= 1.1 * peak


# ---- Nothing in vain ----

SAMPLES = Path(__file__).parents[2] / "samples"
COMMUTATIVE = {"add", "mul", "and", "or", "eq", "ne"}


def computation(operation: nnef_grad.Operation) -> Hashable:
    """What an operation computes: equal for two that compute the same."""
    operands = [
        repr(map_tensors(lambda tensor: id(tensor), operand))
        for operand in operation.operands
    ]
    if operation.name in COMMUTATIVE:
        operands.sort()
    settings = repr(sorted(operation.settings.items()))
    return operation.name, tuple(operands), settings, operation.dtype


def check_nothing_is_in_vain(text: str) -> None:
    graph = nnef_grad.differentiate(nnef_grad.loads(text)).graph
    read = {*graph.outputs, *(t for op in graph.operations for t in op.inputs)}
    unread = [op for op in graph.operations if read.isdisjoint(op.outputs)]
    assert all(op.name == "external" for op in unread)
    # Two results of one value must be two tensors.
    computed = [op for op in graph.operations if op.name not in UNIQUE | {"copy"}]
    assert len(set(map(computation, computed))) == len(computed)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_computes_nothing_in_vain(name: str) -> None:
    check_nothing_is_in_vain(network(name, 1, 224))


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.nnef")), ids=lambda p: p.stem)
def test_a_sample_computes_nothing_in_vain(path: Path) -> None:
    check_nothing_is_in_vain(path.read_text("utf-8"))


@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_an_operation_computes_nothing_in_vain(model: Model) -> None:
    check_nothing_is_in_vain(model.text)
