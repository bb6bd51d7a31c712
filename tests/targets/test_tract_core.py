"""Operations of tract's own registry: what is written, and that it is read again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.checks import document
from support.lowered import lacking
from support.rereading import reread
from support.runtimes import Stored, compare, needs, run
from support.runtimes.cases import Case
from support.runtimes.matrix import Example, retyped, verdicts

import nnef_grad
from nnef_grad.graph.extents import as_numbers
from nnef_grad.interpreter.random_values import random_values
from nnef_grad.targets import Lowered, lower
from nnef_grad.targets.tract import loading

LOOKUP = document(
    "i = external<integer>(shape = [2, 3]);\n"
    "w = variable(shape = [5, 4], label = 'w');\ny = gather(w, i);",
    "i",
)
MATRICES = document(
    "x = external(shape = [2, 4]);\nw = variable(shape = [3, 4], label = 'w');\n"
    "y = matmul(x, w, transposeB = true);\nz = matmul(y, w);",
    "x",
    "z",
)
CUBE = document("x = external(shape = [2, 3]);\ny = pow(x, 3.0);")
CHOICE = document("x = external(shape = [2, 3]);\ny = relu(x);")
POSITION = document(
    "x = external(shape = [2, 3]);\ni = argmax_reduce(x, axes = [1]);\n"
    "n = cast<scalar>(i);\ny = mul(n, x);"
)
TEXTS = {
    "a table": LOOKUP,
    "a cube": CUBE,
    "a choice": CHOICE,
    "a position": POSITION,
    "a matrix": MATRICES,
}


def backward(text: str, target: str = "tract") -> tuple[nnef_grad.Graph, Lowered]:
    graph = nnef_grad.differentiate(nnef_grad.loads(text)).graph
    return graph, lower(graph, target)


def signature(graph: nnef_grad.Graph) -> list[tuple[str, str, tuple[int, ...]]]:
    """What it takes: names, data types and shapes."""
    pairs = zip(graph.input_names, graph.inputs, strict=True)
    return [(name, tensor.dtype, as_numbers(tensor.shape)) for name, tensor in pairs]


def written(text: str) -> list[str]:
    """The statements of its backward graph for tract, after the inputs."""
    body = nnef_grad.dumps(backward(text)[1].graph).split("\n{\n")[1]
    lines = [line.strip() for line in body.splitlines()]
    kept = [line for line in lines if " = " in line and not line.startswith("#")]
    return [line for line in kept if "external" not in line and "variable" not in line]


def test_gradients_of_rows_are_added_where_they_are_from() -> None:
    """The indices are in range, as the rows are read, too."""
    read = LOOKUP.replace("y = gather(w, i)", "t = gather(w, i);\ny = sqr(t)")
    assert written(read)[-2:] == [
        "grad_w_zeros = tract_core_broadcast(0.0, shape = [5, 4]);",
        "grad_w = tract_core_scatter_nd(grad_w_zeros, column_t, rows_t, reduction = 'add');",
    ]


# Documents, and whether their indices are known to be in range.
INDICES = {
    "i = external<integer>(shape = [2]);\nt = gather(w, i);\ny = sqr(t);": True,
    "i = external<integer>(shape = [2]);\ny = gather(w, i);": False,
    "i = external<integer>(shape = [2, 1]);\nj = squeeze(i, axes = [1]);\nt = gather(w, j);\ny = sqr(t);": True,
    "i = constant<integer>(shape = [3], value = [0, 4, 4]);\ny = gather(w, i);": True,
}


@pytest.mark.parametrize(("statements", "is_in_range"), INDICES.items())
def test_indices_that_may_be_out_of_range_are_guarded(
    statements: str, is_in_range: bool
) -> None:
    w = "w = external(shape = [5, 4]);\n"
    inputs = "w, i" if "external" in statements else "w"
    text = "\n".join(written(document(w + statements, inputs)))
    assert "scatter_nd" in text
    assert ("clamp" not in text) == is_in_range


def test_constants_that_are_out_of_range_are_guarded() -> None:
    text = ONE_HOT.replace(
        "external<integer>(shape = [3, 1])",
        "constant<integer>(shape = [3, 1], value = [0, 4, 1])",
    )
    lowered = lower(nnef_grad.loads(text.replace("net( i, r )", "net( r )")), "tract")
    assert "clamp" in nnef_grad.dumps(lowered.graph)


ONE_HOT = document(
    """
    i = external<integer>(shape = [3, 1]);
    r = external(shape = [3, 2]);
    positions = constant(shape = [1, 4], value = [0.0, 1.0, 2.0, 3.0]);
    index = cast<scalar>(i);
    taken = eq(index, positions);
    onehot = select(taken, 1.0, 0.0);
    y = matmul(onehot, r, transposeA = true);
    """,
    "i, r",
)


@pytest.mark.parametrize("rows", [[0, 1, 1], [0, -1, 1], [3, 9, 4]])
def test_rows_out_of_range_are_added_nowhere(rows: list[int], tmp_path: Path) -> None:
    """tract would end the process."""
    needs("tract")
    graph = nnef_grad.loads(ONE_HOT)
    lowered = lower(graph, "tract")
    assert "scatter_nd" in nnef_grad.dumps(lowered.graph)
    inputs = {
        "i": np.array(rows).reshape(3, 1),
        "r": np.arange(6, dtype=np.float32).reshape(3, 2) + 1,
    }
    nnef_grad.save(lowered.graph, tmp_path / "model", data=lowered.data)
    (outcome,) = run("tract", [Stored(tmp_path / "model", inputs)])
    assert compare(outcome, nnef_grad.evaluate(graph, inputs)).word == "ok"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1.0, 2.0, 3.0", "1.0, 3.0, 2.0"),
        ("1.0, 0.0)", "2.0, 0.0)"),
        (", transposeA = true", ""),
    ],
)
def test_other_products_stay(old: str, new: str) -> None:
    text = ONE_HOT.replace(old, new)
    if "transposeA" not in text:
        text = text.replace("shape = [3, 2]", "shape = [4, 2]")
    assert "scatter_nd" not in nnef_grad.dumps(
        lower(nnef_grad.loads(text), "tract").graph
    )


def test_integers_stay_integers() -> None:
    _, lowered = backward(LOOKUP)
    assert [t.dtype for t in lowered.graph.inputs] == ["integer", "scalar"]


def test_numbers_in_choices_are_tensors() -> None:
    assert [line for line in written(CHOICE) if "grad" in line or "mask" in line] == [
        "mask_y_filled = tract_core_broadcast(0.0, shape = [2, 3]);",
        "mask_y = gt(y, mask_y_filled);",
        "grad_x = select(mask_y, grad_y, mask_y_filled);",
    ]


def test_further_products_read_large_variables_by_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loading, "MOST_FOLDED", 11)
    forward = nnef_grad.loads(MATRICES)
    lowered = lower(forward, "tract")
    names = [op.name for op in lowered.graph.operations]
    assert names.count("slice") == 2
    assert names.count("concat") == 1
    values = random_values(forward, seed=1)
    expected = nnef_grad.evaluate(forward, values.inputs, values.variables)["z"]
    found = nnef_grad.evaluate(lowered.graph, values.inputs, values.variables)["z"]
    np.testing.assert_array_equal(found, expected)


def test_a_variable_that_is_read_once_stays_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loading, "MOST_FOLDED", 11)
    text = MATRICES.replace("z = matmul(y, w)", "z = copy(y)")
    operations = lower(nnef_grad.loads(text), "tract").graph.operations
    assert "slice" not in [op.name for op in operations]


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_written_is_read_and_differentiated_again(name: str) -> None:
    graph, lowered = backward(TEXTS[name])
    values = random_values(graph, seed=3)
    again = reread(lowered, values.variables)
    assert signature(again) == signature(lowered.graph)
    wrt = [graph.names[t] for t in graph.inputs if t.dtype == "scalar"]
    twice = nnef_grad.differentiate(graph, wrt=wrt).graph
    twice_again = nnef_grad.differentiate(again, wrt=wrt).graph
    fed = random_values(twice, seed=3)
    variables = {**fed.variables, **lowered.data}
    expected = nnef_grad.evaluate(twice, fed.inputs, fed.variables)
    found = nnef_grad.evaluate(twice_again, fed.inputs, variables)
    for output, array in expected.items():
        np.testing.assert_allclose(found[output], array, 1e-6, 1e-6)


@pytest.mark.parametrize("name", TEXTS)
def test_tract_computes_the_same(name: str) -> None:
    needs("tract")
    graph, lowered = backward(TEXTS[name])
    values = random_values(graph, seed=5)
    expected = nnef_grad.evaluate(graph, values.inputs, values.variables)
    case = Case(
        nnef_grad.dumps(lowered.graph),
        values.inputs,
        {**values.variables, **lowered.data},
    )
    (verdict,) = verdicts("tract", {name: Example(case, expected)}).values()
    assert verdict.word == "ok", verdict


@pytest.mark.parametrize("target", ["tract-standard", "onnx", "khronos"])
@pytest.mark.parametrize("name", TEXTS)
def test_what_is_lowered_for_tract_is_lowered_for_others(
    name: str, target: str
) -> None:
    graph, lowered = backward(TEXTS[name])
    other = lower(lowered.graph, target)
    assert target == "onnx" or not other.graph.fragments
    assert not lacking(other.graph, target)
    values = random_values(graph, seed=7)
    expected = nnef_grad.evaluate(graph, values.inputs, values.variables)
    variables = {**values.variables, **lowered.data, **other.data}
    fed = retyped(values.inputs, other.graph)
    found = nnef_grad.evaluate(other.graph, fed, variables)
    for output, array in expected.items():
        np.testing.assert_allclose(found[output], array, 1e-6, 1e-6)
