"""Operations with their decisions held: smooth, the same at the point, and with the
derivative that docs/conventions.md names where there is a choice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.checks import document
from support.operation_models import models

import nnef_grad
from nnef_grad.graph.ir import STOP
from nnef_grad.graph.loops import is_loop
from nnef_grad.interpreter import EVALUATIONS, held, step
from nnef_grad.interpreter.execution import collect_feeds
from nnef_grad.interpreter.random_values import random_values
from nnef_grad.interpreter.registry import HELD
from nnef_grad.language.library import STDLIB
from nnef_grad.ops.traits import DECISIONS, STEPS

# ---- Everything that decides is held ----

# Smooth functions, inside their domains; and what chooses by operands that are no scalars.
SMOOTH = """
copy neg rcp exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
add sub mul div pow select sqr sqrt rsqr rsqrt log2 sum_reduce mean_reduce moments
sigmoid gelu silu softmax softplus softabs matmul linear
conv deconv separable_conv separable_deconv box debox sample desample avg_pool rms_pool
nearest_downsample area_downsample nearest_upsample multilinear_upsample
local_mean_normalization batch_normalization
reshape squeeze unsqueeze transpose split concat stack unstack slice pad tile gather cast
copy_n add_n external variable constant update
"""
# Their decisions are made by the operations in their bodies, by which they are evaluated.
BY_BODY = {
    *("l1_normalization", "l2_normalization"),
    *("local_variance_normalization", "local_contrast_normalization"),
    "local_response_normalization",
    *("avg_roi_align", "max_roi_align", "linear_quantize"),
}


def test_each_operation_is_smooth_or_held_or_constant() -> None:
    parts = [set(SMOOTH.split()), {*HELD} - {STOP}, STEPS, BY_BODY, DECISIONS]
    assert set().union(*parts) == set(STDLIB)
    assert sum(map(len, parts)) == len(STDLIB)
    assert BY_BODY.isdisjoint(EVALUATIONS)


def test_what_is_not_the_same_function_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = nnef_grad.loads(document("x = external(shape = [9]);\ny = relu(x);"))
    monkeypatch.setitem(HELD, "relu", HELD["abs"])
    with pytest.raises(AssertionError, match="'relu' is another function"):
        nnef_grad.check(graph, nnef_grad.differentiate(graph))


# ---- Kinks ----

SCALARS = "x = external(shape = [2, 3, 40]); u = external(shape = [2, 3, 40]);"
IMAGE = "x = external(shape = [1, 2, 9, 10]);"
ONE = "x = external(shape = [2, 3, 40]);"
WINDOWS = "size = [1, 1, 3, 3], border = 'ignore'"

DECIDING = [
    f"{ONE} y = relu(x);",
    f"{ONE} y = abs(x);",
    f"{ONE} y = leaky_relu(x, alpha = 0.125);",
    f"{ONE} y = elu(x);",
    f"{ONE} y = selu(x);",
    f"{ONE} a = external(shape = [1, 3]); y = prelu(x, a);",
    f"{SCALARS} y = max(x, u);",
    f"{SCALARS} y = min(x, u);",
    f"{SCALARS} y = clamp(x, u, 1.0);",
    f"{ONE} y = clamp(x, 0.0, 1.0);",
    f"{SCALARS} m = ge(x, u); y = select(m, x, u);",
    f"{ONE} m = gt(x, 0.0); s = cast<scalar>(m); y = mul(x, s);",
    f"{ONE} y = max_reduce(x, axes = [1]);",
    f"{ONE} y = min_reduce(x, axes = [0, 2]);",
    f"{ONE} i = argmax_reduce(x, axes = [1]); s = cast<scalar>(i); y = mul(x, s);",
    f"{ONE} s = sign(x); y = mul(x, s);",
    f"{ONE} s = floor(x); y = mul(x, s);",
    f"{ONE} s = ceil(x); y = mul(x, s);",
    f"{ONE} s = round(x); y = mul(x, s);",
    f"{ONE} y = l1_normalization(x, axes = [1], bias = 0.5);",
    f"{ONE} y = l2_normalization(x, axes = [1], bias = 0.25, epsilon = 1.0);",
    f"{IMAGE} y = max_pool(x, {WINDOWS});",
    f"{IMAGE} y = max_pool(x, size = [1, 1, 3, 3]);",
    f"{IMAGE} y, i = max_pool_with_index(x, {WINDOWS});",
    f"{IMAGE} i = argmax_pool(x, {WINDOWS}); y = sample(x, i, {WINDOWS});",
]
REGIONS = [
    f"{IMAGE} r = external(shape = [3, 4]); b = external<integer>(shape = [3, 1]);"
    f" y = {call};"
    for call in (
        "avg_roi_pool(x, r, b, output_size = [2, 3])",
        "max_roi_pool(x, r, b, output_size = [2, 3])",
        "roi_resample(x, r, b, output_size = [2, 3])",
        "roi_resample(x, r, b, output_size = [2, 3], method = 'aligned')",
        "avg_roi_align(x, r, b, output_size = [2, 3], sampling_rate = [2, 2])",
        "max_roi_align(x, r, b, output_size = [2, 3], sampling_rate = [2, 2])",
    )
]


def graph_of(statements: str) -> nnef_grad.Graph:
    lines = statements.split("; ")
    inputs = [line.split(" = ")[0] for line in lines if " = external" in line]
    return nnef_grad.loads(document(";\n".join(lines), ", ".join(inputs)))


def fed(graph: nnef_grad.Graph, draw: Any) -> dict[str, Any]:
    generator = np.random.default_rng(1)
    free = [name for name in graph.input_names if name in ("x", "u", "a")]
    return {name: draw(generator, graph.tensors[name].shape) for name in free}


def near_kinks(generator: np.random.Generator, shape: Any) -> Any:
    """Numbers of all sizes: of some, a step of any size changes the sign or the order."""
    signs = generator.choice([-1.0, 1.0], shape)
    return signs * 10.0 ** generator.uniform(-12.0, 0.0, shape)


def ties(generator: np.random.Generator, shape: Any) -> Any:
    """Numbers that are often the same, and on the kinks."""
    return generator.integers(-1, 2, shape).astype(np.float64)


@pytest.mark.parametrize("draw", [near_kinks, ties])
@pytest.mark.parametrize("statements", DECIDING + REGIONS)
def test_no_kink_is_an_error(statements: str, draw: Any) -> None:
    graph = graph_of(statements)
    backward = nnef_grad.differentiate(graph)
    for seed in range(3):
        checked = nnef_grad.check(graph, backward, inputs=fed(graph, draw), seed=seed)
        assert checked.passed, str(checked)


@pytest.mark.parametrize("statements", REGIONS)
def test_regions_with_corners_on_elements(statements: str) -> None:
    """Points on elements, at the edge and outside of it."""
    graph = graph_of(statements)
    rois = [[0.0, 0.0, 9.0, 10.0], [1.0, 2.0, 4.0, 8.0], [-2.0, 3.0, 12.0, 6.0]]
    backward = nnef_grad.differentiate(graph)
    checked = nnef_grad.check(graph, backward, inputs={"r": rois})
    assert checked.passed, str(checked)


def test_the_images_of_many_neurons_cross_kinks_in_every_step() -> None:
    """A wide layer, as there are in networks: whatever the step, the sign of some neuron
    changes within it.
    """
    graph = graph_of(
        "x = external(shape = [1, 4]); w = external(shape = [4, 20000]);"
        " h = matmul(x, w); a = relu(h); v = external(shape = [20000, 3]); y = matmul(a, v);"
    )
    weights = near_kinks(np.random.default_rng(2), (4, 20000))
    checked = nnef_grad.check(
        graph, nnef_grad.differentiate(graph), inputs={"w": weights}
    )
    assert [g.verdict for g in checked.gradients] == ["ok"] * 3
    assert max(g.error for g in checked.gradients) < 1e-8


def test_what_is_not_chosen_does_not_count() -> None:
    """At the edge of its domain, a branch has no slope."""
    text = (
        "x = external(shape = [4]); m = gt(x, 0.0); f = sqrt(x); y = select(m, f, 0.0);"
    )
    graph = graph_of(text)
    values = {"x": [-1.0, 0.0, 0.25, 4.0]}
    checked = nnef_grad.check(graph, nnef_grad.differentiate(graph), inputs=values)
    assert checked.passed, str(checked)


def test_what_is_no_number_may_be_decided_away() -> None:
    graph = graph_of("x = external(shape = [3]); h = log(x); y = relu(h);")
    checked = nnef_grad.check(
        graph, nnef_grad.differentiate(graph), inputs={"x": [-1.0, 0.5, 2.0]}
    )
    assert checked.passed, str(checked)


# ---- The user's own ----


def test_an_evaluation_of_the_users_goes_first() -> None:
    """What it decides is not known: then the step that agrees best counts."""
    rules = nnef_grad.Rules()

    @rules.evaluation("relu")
    def doubled(x: Any) -> Any:
        return 2.0 * EVALUATIONS["relu"](x)

    graph = graph_of("x = external(shape = [9]); y = relu(x);")
    right = nnef_grad.differentiate(graph)
    assert not nnef_grad.check(graph, right, rules=rules).passed

    @rules.vjp("relu")
    def relu_vjp(emit: Any, operation: Any, dy: Any) -> Any:
        (x,) = operation.operands
        return [emit("select", emit("gt", x, 0.0), emit("mul", dy, 2.0), 0.0)]

    doubled_too = nnef_grad.differentiate(graph, rules=rules)
    assert nnef_grad.check(graph, doubled_too, rules=rules).passed


# ---- Loops ----


def test_no_kink_inside_a_loop_is_an_error() -> None:
    """Ties in the first step, and kinks near all others."""
    text = """version 1.0;
    extension tract_registry tract_core;
    fragment body( s_x: tensor<scalar>, s_h: tensor<scalar>, s_d: tensor<scalar> )
        -> ( new_h: tensor<scalar>, new_d: tensor<scalar> )
    {
        new_d = tanh(min(s_h, s_d) + s_x);
        new_h = select(s_x > 0.0, relu(s_h - s_x), max(s_h, s_d));
    }
    graph net( x, h, d ) -> ( y )
    {
        x = tract_core_external(shape = [4, 2], datum_type = 'f32');
        h = tract_core_external(shape = [1, 2], datum_type = 'f32');
        d = tract_core_external(shape = [1, 2], datum_type = 'f32');
        y = tract_core_scan('body', scan = [('s_x', x, 0, 1)], full = [],
            state = [('s_h', h, 'new_h'), ('s_d', d, 'new_d')],
            output = [('new_h', 'full', 0, 1)], skip = 0, reset_every_turn = 0);
    }"""
    random = np.random.default_rng(0)
    state = random.standard_normal((1, 2))
    feeds = {"x": random.standard_normal((4, 2)), "h": state, "d": state}
    for unroll in (0, 100):
        graph = nnef_grad.loads(text, unroll=unroll)
        assert any(map(is_loop, graph.operations)) == (unroll == 0)
        backward = nnef_grad.differentiate(graph, wrt="all")
        assert nnef_grad.check(graph, backward, inputs=feeds).passed


# ---- At the point, the same ----


@pytest.mark.parametrize(
    "model", [m for m in models() if m.operation in HELD], ids=lambda m: m.name
)
def test_the_same_at_the_point(model: Any) -> None:
    """For other random numbers than those of the check: held asserts it."""
    graph = nnef_grad.loads(model.text)
    for seed in range(4):
        values = random_values(graph, seed)
        inputs, variables = values.inputs, values.variables
        tensors = collect_feeds(graph, inputs, variables)
        for operation in graph.operations:
            tensors.update(step(operation, tensors))
            is_held = bool(held.hold(operation, tensors, {}))
            assert is_held == (operation.name in HELD)
