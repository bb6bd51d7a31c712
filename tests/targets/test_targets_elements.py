"""Operations that are not windows, lowered for the targets: their settings, what is
written, and what the runtimes make of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import nnef
import numpy as np
import pytest
from support.checks import document
from support.lowered import lacking
from support.operation_models import Model, document_of, sections
from support.parts import PARTS, part_of
from support.rereading import reread
from support.runtimes import consumers_of, needs
from support.runtimes.matrix import forward, matrix

import nnef_grad
from nnef_grad.graph.ir import WORDLESS, Graph
from nnef_grad.interpreter.random_values import random_values
from nnef_grad.language.library import STDLIB
from nnef_grad.targets import TARGETS
from nnef_grad.targets.facts import ALL, CONVERTER, LACKING
from nnef_grad.targets.registry import SUFFIX, WRITTEN

FILE = Path(__file__).parent / "settings.txt"
LOWERED = [target for target in TARGETS if target != "nnef"]
CALLS = [(target, runtime) for target in LOWERED for runtime in consumers_of(target)]
CALLS += [("openvino", "openvino")]
# Where the shape inference of the Khronos parser is asked: tract does without it.
INFERRED = [target for target in LOWERED if not target.startswith("tract")]

Arrays = Mapping[str, np.ndarray[Any, Any]]


# ---- Settings ----


@cache
def settings() -> tuple[Model, ...]:
    """All of the file. They are called after their sections."""
    return tuple(
        Model(title.lower().replace(" ", "_"), number, document_of(line))
        for title, lines in sections(FILE)
        for number, line in enumerate(lines, start=1)
    )


def evaluated(graph: Graph, inputs: Arrays, variables: Arrays) -> Arrays:
    """The outputs; what is fed has the type of the input."""
    types = {"scalar": "float64", "integer": "int64", "logical": "bool"}
    fed = {
        name: inputs[name].astype(types[t.dtype])
        for name, t in zip(graph.input_names, graph.inputs, strict=True)
    }
    with np.errstate(all="ignore"):
        return nnef_grad.evaluate(graph, fed, variables)


def assert_same(found: Arrays, expected: Arrays, tolerance: float) -> None:
    for name, wanted in expected.items():
        assert found[name].shape == wanted.shape
        assert (found[name].dtype.kind == "f") == (wanted.dtype.kind == "f")
        np.testing.assert_allclose(
            found[name].astype(float), wanted.astype(float), tolerance, tolerance
        )


@pytest.mark.parametrize("target", LOWERED)
@pytest.mark.parametrize("model", settings(), ids=lambda model: model.name)
def test_settings(model: Model, target: str) -> None:
    graph = nnef_grad.loads(model.text)
    values = random_values(graph, seed=3)
    lowered = nnef_grad.lower(graph, target)
    assert lacking(lowered.graph, target) == []
    variables = {**values.variables, **lowered.data}
    assert_same(
        evaluated(reread(lowered, values.variables), values.inputs, variables),
        evaluated(graph, values.inputs, values.variables),
        1e-12,
    )


@pytest.mark.parametrize("target", INFERRED)
@pytest.mark.parametrize("model", settings(), ids=lambda model: model.name)
def test_the_khronos_parser_agrees(model: Model, target: str) -> None:
    lowered = nnef_grad.lower(nnef_grad.loads(model.text), target).graph
    parsed = nnef.parse_string(nnef_grad.dumps(lowered))
    nnef.infer_shapes(parsed)
    for name, tensor in lowered.tensors.items():
        assert tuple(parsed.tensors[name].shape) == tensor.shape, name


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(("target", "runtime"), CALLS)
def test_settings_in_the_runtimes(target: str, runtime: str, part: int) -> None:
    needs(runtime)
    lower = partial(nnef_grad.lower, target=target)
    chosen = part_of(settings(), part)
    found = matrix(chosen, forward, lower=lower, consumers=[runtime])
    wrong = {
        name: row[runtime] for name, row in found.items() if row[runtime][0] != "ok"
    }
    assert wrong == {}


# ---- What is written ----

TEXTS = {
    # A literal that is broadcast crashes a runtime.
    "select": (
        "khronos",
        "x = external(shape = [2, 3]);\nm = external<logical>(shape = [1, 3]);\ny = select(m, x, 0.5);",
        """
        y_false_value = unsqueeze(0.5, axes = [0, 1]);
        y = select(m, x, y_false_value);
        """,
    ),
    # What is subtracted from a number is added to it.
    "one less a convolution": (
        "tract",
        "x = external(shape = [1, 3, 5]);\nw = external(shape = [1, 3, 2]);\nm = conv(x, w, padding = [(0, 0)]);\n"
        "y = sub(1.0, m);",
        """
        m = conv(x, w, padding = [(0, 0)]);
        y_opposite = neg(m);
        y = add(1.0, y_opposite);
        """,
    ),
    "one less what a convolution at a single position makes": (
        "tract",
        "x = external(shape = [1, 3, 2]);\nw = external(shape = [1, 3, 2]);\nd = external(shape = [1, 1, 1]);\n"
        "m = conv(x, w, padding = [(0, 0)]);\np = mul(m, d);\ny = sub(d, p);",
        """
        m = conv(x, w, padding = [(0, 0)]);
        p = mul(m, d);
        y_opposite = neg(p);
        y = add(d, y_opposite);
        """,
    ),
    "a reversed axis": (
        "tract",
        "x = external(shape = [5, 4]);\ny = slice(x, axes = [0], begin = [-1], end = [-6], stride = [-1]);",
        """
        y_mirror = pad(x, padding = [(0, 4), (0, 0)], border = 'reflect');
        y = slice(y_mirror, axes = [0], begin = [4], end = [9]);
        """,
    ),
    "a border beside space": (
        "khronos",
        "x = external(shape = [3, 4]);\ny = pad(x, padding = [(0, 0), (2, 1)], border = 'reflect');",
        """
        y_image = unsqueeze(x, axes = [0]);
        y_padded = pad(y_image, padding = [(0, 0), (0, 0), (2, 1)], border = 'reflect');
        y = squeeze(y_padded, axes = [0]);
        """,
    ),
    # Where it is all there is, no part of it is taken.
    "a stride over one element": (
        "tract",
        "x = external(shape = [3, 4]);\ny = slice(x, axes = [1], begin = [1], end = [3], stride = [3]);",
        """
        y = slice(x, axes = [1], begin = [1], end = [2]);
        """,
    ),
    # It moves over a filter of one point along its axis, and would meet the reshape.
    "a stride after a flat filter": (
        "tract",
        "x = external(shape = [4, 6]);\nw = external(shape = [2, 1, 2, 1]);\nr = reshape(x, shape = [1, 1, 4, 6]);\n"
        "m = conv(r, w, padding = [(0, 0), (0, 0)]);\ny = slice(m, axes = [3], begin = [0], end = [6], stride = [2]);",
        """
        r = reshape(x, shape = [1, 1, 4, 6]);
        m = conv(r, w, padding = [(0, 0), (0, 0)]);
        y_twice = tile(m, repeats = [1, 1, 1, 2]);
        y = slice(y_twice, axes = [3], begin = [0], end = [6], stride = [2]);
        """,
    ),
    # The one that makes an output is read by nothing.
    "the same twice": (
        "tract",
        "x = external(shape = [3, 4]);\na = exp(x);\ny = exp(x);\nb = neg(a);\nc = neg(y);\nz = mul(b, c);",
        """
        a = exp(x);
        y = exp(x);
        b = neg(a);
        z = mul(b, b);
        """,
    ),
    "a mirrored edge": (
        "tract",
        "x = external(shape = [1, 4]);\ny = pad(x, padding = [(1, 0), (0, 0)], border = 'reflect-even');",
        """
        y = concat([x, x], axis = 0);
        """,
    ),
    "a repeated edge": (
        "tract",
        "x = external(shape = [3, 4]);\ny = pad(x, padding = [(0, 0), (2, 1)], border = 'replicate');",
        """
        y_edge = slice(x, axes = [1], begin = [0], end = [1]);
        y_edges = tile(y_edge, repeats = [1, 2]);
        y_edge_1 = slice(x, axes = [1], begin = [3], end = [4]);
        y = concat([y_edges, x, y_edge_1], axis = 1);
        """,
    ),
    "a product of batches": (
        "portable",
        "x = external(shape = [2, 3, 4]);\nu = external(shape = [1, 2, 4]);\ny = matmul(x, u, transposeB = true);",
        """
        y_transposed = transpose(u, axes = [0, 2, 1]);
        y_repeated = tile(y_transposed, repeats = [2, 1, 1]);
        y = matmul(x, y_repeated);
        """,
    ),
    "a constant that a literal can stand for": (
        "tract",
        "x = external(shape = [2, 3]);\nc = constant(shape = [1, 3], value = [0.5]);\ny = mul(x, c);",
        """
        y = mul(x, 0.5);
        """,
    ),
    "a constant that decides the shape": (
        "portable",
        "x = external(shape = [2, 1]);\nc = constant(shape = [1, 3], value = [0.5]);\ny = mul(x, c);",
        """
        y_single = mul(x, 0.5);
        y = tile(y_single, repeats = [1, 3]);
        """,
    ),
    "a constant that is joined": (
        "tract-standard",
        "x = external(shape = [2, 3]);\nc = constant(shape = [1, 3], value = [0.5]);\ny = concat([x, c], axis = 0);",
        """
        c_single = unsqueeze(0.5, axes = [0, 1]);
        c = tile(c_single, repeats = [1, 3]);
        y = concat([x, c], axis = 0);
        """,
    ),
    "a gathered row": (
        "tract-standard",
        "x = external(shape = [4, 3]);\ni = external<integer>(shape = [2]);\ny = gather(x, i);",
        """
        y_positions = variable(shape = [1, 4], label = 'nnef-grad/constants/1');
        y_index = reshape(i, shape = [2, 1]);
        y_taken = eq(y_index, y_positions);
        y_onehot = select(y_taken, 1.0, 0.0);
        y = matmul(y_onehot, x);
        """,
    ),
    "the position of a maximum as a number": (
        "tract-standard",
        "x = external(shape = [4, 3]);\ni = argmax_reduce(x, axes = [1]);\ny = cast<scalar>(i);",
        """
        y_extremum = max_reduce(x, axes = [1]);
        y_hit = eq(x, y_extremum);
        y_positions = variable(shape = [1, 3], label = 'nnef-grad/constants/1');
        y_candidates = select(y_hit, y_positions, 3.0);
        y = min_reduce(y_candidates, axes = [1]);
        """,
    ),
    "a normalised batch": (
        "khronos",
        "x = external(shape = [2, 3, 4, 4]);\nm = variable(shape = [1, 3], label = 'm');\nv = variable(shape = [1, 3], label = 'v');\ny = batch_normalization(x, m, v, 0.0, 1.0, epsilon = 0.001);",
        """
        m = variable(shape = [1, 3], label = 'm');
        v = variable(shape = [1, 3], label = 'v');
        y_shifted = add(v, 0.001);
        y_deviation = sqrt(y_shifted);
        y_factor = div(1.0, y_deviation);
        y_centered = sub(x, m);
        y = mul(y_centered, y_factor);
        """,
    ),
    "softmax": (
        "portable",
        "x = external(shape = [2, 3, 4]);\ny = softmax(x);",
        """
        y_peak = max_reduce(x, axes = [1]);
        y_shifted = sub(x, y_peak);
        y_powers = exp(y_shifted);
        y_total = sum_reduce(y_powers, axes = [1]);
        y = div(y_powers, y_total);
        """,
    ),
    "six axes in another order": (
        "khronos",
        "x = external(shape = [2, 3, 2, 2, 1, 2]);\ny = transpose(x, axes = [1, 0, 2, 3, 5, 4]);",
        """
        y_blocks = reshape(x, shape = [2, 3, 8]);
        y_moved = transpose(y_blocks, axes = [1, 0, 2]);
        y = reshape(y_moved, shape = [3, 2, 2, 2, 2, 1]);
        """,
    ),
}


def statements(text: str) -> list[str]:
    """Those of the body, without its inputs."""
    lines = (line.strip() for line in text.splitlines() if line.strip().endswith(";"))
    body = [line for line in lines if not line.startswith("version")]
    return [line for line in body if "external" not in line]


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_written(name: str) -> None:
    target, source, expected = TEXTS[name]
    graph = nnef_grad.loads(document_of(source.replace("\n", " ")))
    lowered = nnef_grad.lower(graph, target).graph
    assert statements(nnef_grad.dumps(lowered)) == statements(expected)


# ---- Numbers ----


def lowered_outputs(statements: str, target: str, **inputs: Any) -> Arrays:
    lowered = nnef_grad.lower(nnef_grad.loads(document_of(statements)), target)
    arrays = {name: np.array(value) for name, value in inputs.items()}
    return evaluated(lowered.graph, arrays, lowered.data)


def test_halves_are_rounded_up() -> None:
    statements = "x = external(shape = [6]); y = round(x);"
    halves = [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]
    for target in LOWERED:
        found = lowered_outputs(statements, target, x=halves)
        assert found["y"].tolist() == [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0]


def test_powers_of_two_are_their_own_highest_level() -> None:
    statements = "x = external(shape = [3]); u = external(shape = [3]); y = logarithmic_quantize(x, u, bits = 3);"
    bounds = [2.0**29, 2.0**-5, 8.0]
    for target in LOWERED:
        found = lowered_outputs(statements, target, x=[1e10, 1e10, 9.0], u=bounds)
        assert found["y"].tolist() == bounds


def test_what_is_not_a_number_is_neither_above_nor_below() -> None:
    statements = "x = external(shape = [2]); a = le(x, 1.0); b = ge(x, 1.0); y = or(a, b); z = ne(x, 1.0);"
    found = lowered_outputs(statements, "onnx", x=[np.nan, 1.0])
    assert found["y"].tolist() == [False, True]
    assert found["z"].tolist() == [True, False]


def test_large_numbers_do_not_overflow() -> None:
    statements = "x = external(shape = [3]); y = softplus(x);"
    found = lowered_outputs(statements, "khronos", x=[1000.0, 0.0, -1000.0])
    np.testing.assert_allclose(found["y"], [1000.0, np.log(2.0), 0.0])


def test_what_is_hidden_by_a_mask_stays_hidden() -> None:
    """No product with zero stands for a choice."""
    statements = "x = external(shape = [2, 2]); m = external<logical>(shape = [2]); y = select(m, x, 0.0);"
    hidden = [[np.nan, np.inf], [1.0, 2.0]]
    for target in LOWERED:
        found = lowered_outputs(statements, target, x=hidden, m=[False, True])
        assert found["y"].tolist() == [[0.0, 0.0], [1.0, 2.0]]


# ---- The interface ----


def test_integers_that_become_scalars_are_told_of() -> None:
    text = document_of(
        "x = external(shape = [4, 3]); i = external<integer>(shape = [2]); y = gather(x, i);"
    )
    lowered = nnef_grad.lower(nnef_grad.loads(text), "tract-standard").graph
    assert [t.dtype for t in lowered.inputs] == ["scalar", "scalar"]
    assert lowered.notes == ("  i: input, whole numbers as scalars",)
    lowered = nnef_grad.lower(nnef_grad.loads(text), "tract").graph
    assert [t.dtype for t in lowered.inputs] == ["scalar", "integer"]


def test_integers_of_a_variable_stay_what_they_are() -> None:
    text = document_of(
        "x = external(shape = [4, 3]); i = variable<integer>(shape = [2], label = 'i'); y = gather(x, i);"
    )
    graph = nnef_grad.loads(text)
    message = "tract cannot run 'cast' of the integers 'i'"
    with pytest.raises(nnef_grad.UnsupportedError, match=message):
        nnef_grad.lower(graph, "tract-standard")
    assert nnef_grad.lower(graph, "onnx").graph.variables == graph.variables


def test_names_that_tract_reads_as_literals() -> None:
    text = document_of("x = external(shape = [2]); info = exp(x); y = mul(info, info);")
    lowered = nnef_grad.lower(nnef_grad.loads(text), "tract").graph
    assert [*lowered.tensors] == ["x", "_info", "y"]
    assert lowered.notes == ()
    renamed = document("true_x = external(shape = [2]);\ny = exp(true_x);", "true_x")
    lowered = nnef_grad.lower(nnef_grad.loads(renamed), "tract").graph
    assert lowered.input_names == ("_true_x",)
    assert lowered.notes == ("  _true_x: what 'true_x' is called here",)


def test_labels_of_constants_are_free() -> None:
    text = document_of(
        "x = external(shape = [2]); v = variable(shape = [2], label = 'NNEF-grad/Constants'); c = constant(shape = [2], value = [1.0, 2.0]); s = mul(x, v); y = mul(s, c);"
    )
    lowered = nnef_grad.lower(nnef_grad.loads(text), "tract")
    assert list(lowered.data) == ["nnef-grad/constants_1/1"]
    (data,) = lowered.data.values()
    assert data.dtype == np.float32
    assert data.tolist() == [1.0, 2.0]


def test_copies_of_the_users_stay() -> None:
    text = document_of(
        "x = external(shape = [2]); a = copy(x); y = squeeze(a, axes = []);"
    )
    lowered = nnef_grad.lower(nnef_grad.loads(text), "onnx").graph
    assert [op.name for op in lowered.operations] == ["external", "copy", "copy"]


def test_an_operation_without_a_body_is_nothing_that_runs() -> None:
    text = """version 1.0;
extension KHR_enable_fragment_definitions;
fragment swish( x: tensor<scalar> ) -> ( y: tensor<scalar> );
graph net( x ) -> ( y ) { x = external(shape = [2]); y = swish(x); }
"""
    rules = nnef_grad.Rules()
    rules.shape("swish")(lambda x: x)
    graph = nnef_grad.loads(text, rules=rules)
    with pytest.raises(nnef_grad.UnsupportedError, match="tract cannot run 'swish'"):
        nnef_grad.lower(graph, "tract")


# ---- The tables ----


def test_facts_are_about_operations_that_there_are() -> None:
    assert set(LACKING) <= {*STDLIB, *WORDLESS}
    keys = {name for facts in LACKING.values() for names, _ in facts for name in names}
    assert keys == {*ALL.split(), "openvino", "engines", CONVERTER.names}


def test_lowerings_have_the_signatures_of_their_operations() -> None:
    lowered = {name: f for name, f in WRITTEN.items() if name.endswith(SUFFIX)}
    assert set(WRITTEN) - set(lowered) == {"gelu_probability"}
    for name, fragment in lowered.items():
        definition = STDLIB[name.removesuffix(SUFFIX)]
        assert [p.name for p in fragment.parameters] == [
            p.name for p in definition.parameters
        ]
        assert [r.name for r in fragment.results] == [
            r.name for r in definition.results
        ]


# ---- What the converter to NNEF 2.0 reads ----


@pytest.mark.parametrize(
    ("condition", "yes"),
    [([3], "x"), ([3, 1], "x"), ([], "x"), ([3], "0.0"), ([3, 3], "m"), ([1], "m")],
)
def test_choices_of_portable_graphs_have_one_rank(
    condition: list[int], yes: str
) -> None:
    """It aligns axes from the right, where the standard aligns them from the left."""
    text = f"""version 1.0;
    graph g( x, m, c ) -> ( y )
    {{
        x = external(shape = [3, 3]);
        m = external(shape = [3]);
        c = external<logical>(shape = {condition});
        y = select(c, {yes}, x);
    }}"""
    graph = nnef_grad.loads(text)
    lowered = nnef_grad.lower(graph, "portable").graph
    choices = [op for op in lowered.operations if op.name == "select"]
    assert choices
    assert all(x.rank == 2 for op in choices for x in op.inputs)
    random = np.random.default_rng(0)
    values = {
        "x": random.random((3, 3)),
        "m": random.random(3),
        "c": random.random(condition) < 0.5,
    }
    np.testing.assert_array_equal(
        nnef_grad.evaluate(lowered, values)["y"],
        nnef_grad.evaluate(graph, values)["y"],
    )
