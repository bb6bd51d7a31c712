"""What the page of a report is told: places, folds, rules, broadcasts, costs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.networks import network

import nnef_grad
from nnef_grad.graph.modules import path_of_label, path_of_scopes
from nnef_grad.reports.blocks import blocks, hosts
from nnef_grad.reports.contents import LONGEST, contents
from nnef_grad.reports.folds import WIDEST, Fold, Part, folds
from nnef_grad.targets import lower

BROADCAST = """version 1.0;
graph net( a, b ) -> ( c )
{
    a = external(shape = [1, 3]);
    b = external(shape = [4, 3]);
    c = mul(a, b);
}
"""


def model(body: str, output: str = "y") -> nnef_grad.Graph:
    head = "    x = external(shape = [4, 8]);\n"
    text = f"version 1.0;\ngraph net( x ) -> ( {output} )\n{{\n{head}{body}\n}}\n"
    return nnef_grad.loads(text)


def told(graph: nnef_grad.Graph, **options: Any) -> dict[str, Any]:
    backward = nnef_grad.differentiate(graph, **options)
    return contents(graph, backward, nnef_grad.Rules())


def first_of(operation: nnef_grad.Operation, graph: nnef_grad.Graph) -> str:
    """The name of the first result of an operation, by the table of a graph."""
    return graph.names[operation.outputs[0]]


def beside(graph: nnef_grad.Graph, backward: nnef_grad.Backward) -> dict[str, str]:
    """For each result of the backward graph, the forward result that it stands beside."""
    operations = zip(backward.graph.operations, blocks(graph, backward), strict=True)
    return {
        first_of(op, backward.graph): first_of(graph.operations[index], graph)
        for op, index in operations
    }


# ---- Places ----


def test_a_derivative_stands_beside_its_forward_operation() -> None:
    graph = model("h = tanh(x); y = exp(h);")
    backward = nnef_grad.differentiate(graph)
    places = beside(graph, backward)
    for operation in backward.graph.operations:
        if operation.origin is not None:
            name = first_of(operation, backward.graph)
            assert places[name] == first_of(operation.origin, backward.graph)
    assert places["h"] == "h"
    assert places["grad_y"] == "y"
    assert places["x"] == "x"


def test_what_an_operation_was_replaced_by_stands_beside_it() -> None:
    graph = model("h = exp(x); n = l2_normalization(h, axes = [1]); y = tanh(n);")
    backward = nnef_grad.differentiate(graph)
    places = beside(graph, backward)
    assert {"n_squares", "n_max", "mask_n_max"} <= places.keys()
    assert {place for name, place in places.items() if "n_" in name} == {"n"}


@pytest.mark.parametrize("target", ["portable", "tract", "onnx", "khronos"])
def test_every_operation_of_a_lowered_graph_stands_beside_what_it_came_from(
    target: str,
) -> None:
    graph = nnef_grad.loads(network("resnet", 1, 32))
    backward = nnef_grad.differentiate(graph)
    before = beside(graph, backward)
    lowered = lower(backward.graph, target).graph
    after = beside(graph, replace(backward, graph=lowered))
    kept = before.keys() & after.keys()
    assert len(kept) > 500
    assert {name for name in kept if after[name] != before[name]} == set()


def test_a_copy_of_a_gradient_stands_beside_the_gradient() -> None:
    variables = "v = variable(shape = [1, 8], label = 'v'); w = variable(shape = [1, 8], label = 'w');"
    graph = model(f"{variables} h = add(x, v); y = add(h, w); z = tanh(y);", "z")
    backward = nnef_grad.differentiate(graph)
    places = beside(graph, backward)
    copies = [op for op in backward.graph.operations if op.name == "copy"]
    assert copies
    names = backward.graph.names
    for copy in copies:
        assert places[names[copy.outputs[0]]] == places[names[copy.inputs[0]]]


def test_a_backward_graph_may_be_the_forward_graph() -> None:
    first = nnef_grad.differentiate(model("h = tanh(x); y = exp(h);")).graph
    backward = nnef_grad.differentiate(first)
    data = contents(first, backward, nnef_grad.Rules())
    assert not any(op["isDerivative"] for op in data["forward"]["operations"])
    places = beside(first, backward)
    for operation in backward.graph.operations:
        name = first_of(operation, backward.graph)
        if name in first.tensors:
            assert places[name] == name
        elif operation.origin is not None:
            assert places[name] == first_of(operation.origin, backward.graph)
    rules = {
        op["results"][0]: data["rules"][op["rule"]][0]
        for op in data["forward"]["operations"]
    }
    assert rules["grad_x"] == "mul_vjp in derivatives.nnef"
    assert rules["h"] == "tanh_vjp in derivatives.nnef"


def test_variables_are_drawn_with_their_first_reader() -> None:
    body = "w = variable(shape = [1, 8], label = 'w'); h = mul(x, w); y = mul(h, w);"
    assert hosts(model(body)) == [0, 2, 2, 3]


def test_a_gradient_of_what_has_no_influence_has_a_place() -> None:
    graph = model("w = variable(shape = [1, 8], label = 'w'); y = tanh(x);")
    backward = nnef_grad.differentiate(graph)
    assert beside(graph, backward)["grad_w"] == "y"


# ---- Folds ----


def shown(part: Part, graph: nnef_grad.Graph) -> Any:
    if isinstance(part, Fold):
        return part.name, [shown(p, graph) for p in part.parts]
    return first_of(graph.operations[part], graph)


def folded(graph: nnef_grad.Graph) -> Any:
    return shown(folds(graph, hosts(graph)), graph)


def test_folds_are_the_modules_of_the_labels() -> None:
    lines = []
    last = "x"
    for layer in range(2):
        for name in ("up", "down"):
            module = f"net.layers.{layer}.{name}"
            made = f"{name}{layer}"
            lines.append(
                f"w_{made} = variable(shape = [8, 8], label = '{module}.weight');"
            )
            lines.append(
                f"{made} = linear({last}, w_{made}, 0.0); {made}_relu = relu({made});"
            )
            last = f"{made}_relu"
    lines.append(f"y = add({last}, x);")
    first, second = (
        ["up0", "up0_relu", "down0", "down0_relu"],
        ["up1", "up1_relu", "down1", "down1_relu", "y"],
    )
    found = folded(model("\n".join(lines)))
    assert found == ("net", ["x", ("layers.0", first), ("layers.1", second)])


def test_folds_are_the_modules_that_operations_are_of() -> None:
    """An operation without variables that stands behind a module is in it only if the file
    says so; labels alone would put `add` into `att`.
    """
    graph = model(
        "w = variable(shape = [8, 8], label = 'att.proj.weight');"
        "h = linear(x, w); s = tanh(h); z = add(s, x); y = exp(z);"
    )
    paths = {
        "w": ("att", "proj"),
        "h": ("att", "proj"),
        "s": ("att",),
        "z": (),
        "y": (),
    }
    operations = tuple(
        replace(op, module=paths.get(first_of(op, graph))) for op in graph.operations
    )
    whole = replace(graph, operations=operations)
    assert folded(whole) == ("net", ["x", ("att", ["h", "s"]), "z", "y"])
    assert folded(graph) != folded(whole)


@pytest.mark.parametrize(
    ("scopes", "path"),
    [
        (["layer1", "layer1.0", "conv1"], ("layer1", "layer1.0", "conv1")),
        (["mlp", "mlp.2"], ("mlp", "mlp.2")),
        (["encoder", "att"], ("encoder", "att")),
        ([], ()),
    ],
)
def test_scopes_of_an_exporter_are_the_paths_of_labels(
    scopes: list[str], path: tuple[str, ...]
) -> None:
    assert path_of_scopes(scopes) == path
    assert path_of_label(".".join([*scopes[-2:-1], "w"])) == path[:-1]


def every_fold(fold: Fold) -> list[Fold]:
    inner = [part for part in fold.parts if isinstance(part, Fold)]
    return [fold, *(f for part in inner for f in every_fold(part))]


def leaves(part: Part) -> list[int]:
    if isinstance(part, Fold):
        return [leaf for p in part.parts for leaf in leaves(p)]
    return [part]


def test_many_operations_without_modules_are_cut_where_few_tensors_cross() -> None:
    body, last = [], "x"
    for block in range(20):
        body.append(f"a{block} = tanh({last}); b{block} = exp({last});")
        body.append(f"c{block} = add(a{block}, b{block});")
        last = f"c{block}"
    graph = model("\n".join(body), "c19")
    fold = folds(graph, hosts(graph))
    assert leaves(fold) == list(range(61))
    assert all(2 <= len(f.parts) <= WIDEST for f in every_fold(fold))
    for part in fold.parts[:-1]:
        name = first_of(graph.operations[leaves(part)[-1]], graph)
        assert name == "x" or name.startswith("c")


def test_labels_may_have_any_number_of_modules() -> None:
    deep = "a/" * 5000
    layers = (
        f"w{i} = variable(shape = [1, 8], label = 'm{i}/{deep}w'); h{i} = mul(x, w{i});"
        for i in range(3)
    )
    graph = model(f"{' '.join(layers)} z = add(h0, h1); y = add(z, h2);")
    assert leaves(folds(graph, hosts(graph))) == [0, 2, 4, 6, 7, 8]


def test_the_folds_of_a_real_network() -> None:
    graph = nnef_grad.loads(network("resnet", 1, 32))
    fold = folds(graph, hosts(graph))
    names = [part.name for part in fold.parts if isinstance(part, Fold)]
    assert names == ["block1", "block2", "block3", "block4"]
    inside = fold.parts[3]
    assert isinstance(inside, Fold)
    assert [shown(part, graph)[0] for part in inside.parts] == [
        f"unit_{number}/bottleneck_v2" for number in (1, 2, 3)
    ]


# ---- Rules ----


@pytest.mark.parametrize(
    ("body", "title", "text"),
    [
        ("y = tanh(x);", "tanh_vjp in derivatives.nnef", "slope = 1.0 - square;"),
        ("y = sum_reduce(x, axes = [1]);", "nnef_grad/ops/reduce.py", "def sum_reduce_vjp"),
        ("y = l1_normalization(x, axes = [1]);", "through its definition", "fragment l1_norm"),
        ("y = mul(floor(x), x);", "step function", ""),
    ],
)  # fmt: skip
def test_the_text_of_a_rule(body: str, title: str, text: str) -> None:
    data = told(model(body))
    rules = [
        data["rules"][op["rule"]]
        for op in data["forward"]["operations"]
        if op["kind"] != "external"
    ]
    (found,) = [rule for rule in rules if title in rule[0]]
    assert text in found[1]
    assert found[1] == "" or found[1].count("{") == found[1].count("}")


def test_the_text_of_a_rule_of_the_users_own() -> None:
    graph = model("y = tanh(x);")
    rules = nnef_grad.loads_rules(
        "fragment tanh_vjp( x: tensor<scalar>, y: tensor<scalar>, dy: tensor<scalar> )"
        " -> ( dx: tensor<scalar> ) { dx = dy * (1.0 - y * y); } # mine\n",
        name="own.nnef",
    )
    backward = nnef_grad.differentiate(graph, rules=rules)
    data = contents(graph, backward, rules)
    title, text = data["rules"][data["forward"]["operations"][-1]["rule"]]
    assert title == "tanh_vjp in own.nnef"
    assert text.startswith("fragment tanh_vjp(")
    assert text.endswith("dx = dy * (1.0 - y * y); }")


# ---- Broadcasts ----


def test_a_reduction_names_the_broadcast_that_caused_it() -> None:
    data = told(nnef_grad.loads(BROADCAST))
    backward = data["backward"]
    said = {
        op["results"][0]: note
        for op, note in zip(backward["operations"], backward["broadcasts"], strict=True)
    }
    assert said.pop("grad_a") == "a [1, 3] was broadcast to c [4, 3]"
    assert set(said.values()) == {""}


def test_every_inserted_reduction_of_a_network_is_marked_and_no_other() -> None:
    graph = nnef_grad.loads(network("resnet", 1, 32))
    backward = nnef_grad.differentiate(graph)
    data = contents(graph, backward, nnef_grad.Rules())["backward"]
    notes = dict(
        zip((op["results"][0] for op in data["operations"]), data["broadcasts"], strict=True)
    )  # fmt: skip
    sums = {
        first_of(op, backward.graph)
        for op in backward.graph.operations
        if op.name == "sum_reduce"
    }
    marked = {name for name, note in notes.items() if note}
    assert marked >= {n for n in sums if "bias" in n or "beta" in n or "norm" in n}
    kinds = {op["kind"] for op in data["operations"] if notes[op["results"][0]]}
    assert kinds == {"sum_reduce", "squeeze"}
    broadcast = {
        note.split(" ")[0] for text in marked for note in notes[text].split("; ")
    }
    variables = {graph.names[variable] for variable in graph.variables}
    assert broadcast <= variables
    assert {
        v for v in variables if v.startswith(("bias", "beta", "moving"))
    } == broadcast


def test_a_sum_of_the_model_itself_is_not_marked() -> None:
    data = told(model("y = softmax(x);"))
    assert not any(data["backward"]["broadcasts"])


# ---- Costs ----


def test_the_costs_are_those_of_the_statistics() -> None:
    graph = nnef_grad.loads(network("resnet", 1, 32))
    backward = nnef_grad.differentiate(graph)
    data = contents(graph, backward, nnef_grad.Rules())
    for side, of in (("forward", graph), ("backward", backward)):
        expected = nnef_grad.statistics(of)
        operations = data[side]["operations"]
        run = [op for op in operations if op["bytesAlive"] is not None]
        assert [op["bytesAlive"] for op in run] == [
            cost.bytes_alive for cost in expected.by_operation
        ]
        assert sum(op["multiplyAdds"] for op in operations) == expected.multiply_adds
        assert sum(op["bytesMoved"] for op in run) == sum(
            cost.bytes_moved for cost in expected.by_operation
        )
        assert data[side]["totals"]["peak_bytes"] == expected.peak_bytes


def test_a_report_of_a_jacobian() -> None:
    graph = model("y = tanh(x);")
    backward = nnef_grad.jacobian(graph, wrt=["x"])
    places = beside(graph, backward)
    assert set(places.values()) <= {"x", "y"}


# ---- Graphs out of the ordinary ----


def test_a_long_constant_is_clipped() -> None:
    items = ", ".join(f"{i}.0" for i in range(5000))
    found = told(
        model(
            f"c = constant(shape = [625, 8], value = [{items}]); y = matmul(x, c, transposeB = true);"
        )
    )
    (constant,) = (
        op for op in found["forward"]["operations"] if op["kind"] == "constant"
    )
    shown = [constant["text"], *(text for _, text in constant["attributes"])]
    assert max(map(len, shown)) == LONGEST + 2
    assert constant["text"].endswith(" \N{HORIZONTAL ELLIPSIS}")


def test_symbols_need_numbers() -> None:
    text = """version 1.0;
extension tract_registry tract_core;
extension tract_symbol B;
graph net( x ) -> ( y )
{
    x = tract_core_external(shape = [B, 8], datum_type = 'f32');
    y = tanh(x);
}
"""
    graph = nnef_grad.loads(text)
    backward = nnef_grad.differentiate(graph)
    with pytest.raises(nnef_grad.InvalidGraphError, match=r"cannot count with .*'B'"):
        contents(graph, backward, nnef_grad.Rules())


# ---- What gradients flow through ----


def test_step_functions_and_what_is_stopped_are_not_active() -> None:
    graph = model(
        "f = floor(x); h = add(f, x); k = tanh(h); y = add(k, h); z = neg(x);"
    )
    backward = nnef_grad.differentiate(graph, outputs=["y"], stop=["k"])
    active = contents(graph, backward, nnef_grad.Rules())["forward"]["active"]
    names = [first_of(operation, graph) for operation in graph.operations]
    found = {name for name, is_active in zip(names, active, strict=True) if is_active}
    assert found == {"h", "y"}


# ---- Operands and losses ----


def test_each_operand_has_the_name_of_its_parameter() -> None:
    weights = "w = variable(shape = [3, 8], label = 'w'); b = variable(shape = [1, 3], label = 'b');"
    data = told(model(f"{weights} l = linear(x, w, b); y = concat([l, l], axis = 0);"))
    operands = {
        op["results"][0]: op["operands"] for op in data["forward"]["operations"]
    }
    assert operands["l"] == [("input", "x"), ("filter", "w"), ("bias", "b")]
    assert operands["y"] == [("values", "l"), ("values", "l")]


@pytest.mark.parametrize("value", ["much", [[1.0], [1.0, 2.0]]])
def test_values_that_are_no_numbers_are_refused(value: Any, tmp_path: Path) -> None:
    graph = model("y = tanh(x);")
    backward = nnef_grad.differentiate(graph)
    name = next(iter(backward.gradients.values()))
    with pytest.raises(nnef_grad.UsageError, match=f"values of '{name}' are not"):
        nnef_grad.report(graph, backward, tmp_path / "v.html", values={name: value})


def test_losses_are_numbers_of_json() -> None:
    graph = model("y = tanh(x);")
    backward = nnef_grad.differentiate(graph)
    losses = {np.int64(1): np.float32(0.5), 2: float("nan"), 3: -float("inf")}
    data = contents(graph, backward, nnef_grad.Rules(), losses=losses)  # type: ignore[arg-type]
    assert json.dumps(data["losses"]) == '[[1, 0.5], [2, "nan"], [3, "-inf"]]'
    assert told(graph)["losses"] == []
