"""Slices whose end is 0, or becomes 0 where a symbol has a number: tract is the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.runtimes import Stored, compare, needs, run

import nnef_grad
from nnef_grad.base.errors import NnefGradError
from nnef_grad.graph.symbols import with_numbers
from nnef_grad.runtimes import find_runtime


def document(statements: str, batch: int | str = 3) -> str:
    return f"""version 1.0;
extension tract_registry tract_core;
extension tract_symbol B;

graph net( x ) -> ( y )
{{
    x = tract_core_external(shape = [{batch}, 4], datum_type = 'f32');
    s = tract_core_shape_of(x);
    n = squeeze(slice(s, axes = [0], begin = [0], end = [1]), axes = [0]);
    zero = sub(n, 3);
    {statements}
}}
"""


ENDS_OF_0 = {
    "nothing": ("axes = [1], begin = [0], end = [0]", (3, 0)),
    "to_the_end": ("axes = [1], begin = [1], end = [0]", (3, 3)),
    "nothing_computed": ("axes = [1], begin = [0], end = [zero]", (3, 0)),
    "to_the_end_computed": ("axes = [1], begin = [1], end = [zero]", (3, 3)),
    "both_computed": ("axes = [1], begin = [zero], end = [zero]", (3, 0)),
    "arithmetic": ("axes = [1], begin = [0], end = [1 - 1]", (3, 0)),
    "two_axes": ("axes = [0, 1], begin = [1, 0], end = [0, 0]", (2, 0)),
    "from_the_end": ("axes = [-1], begin = [0], end = [0]", (3, 0)),
    "every_second": ("axes = [1], begin = [1], end = [0], stride = [2]", (3, 2)),
    "none_of_every_second": (
        "axes = [1], begin = [0], end = [0], stride = [2]",
        (3, 0),
    ),
}
# tract counts no axis from the end.
READ_BY_TRACT = [name for name in ENDS_OF_0 if name != "from_the_end"]


@pytest.mark.parametrize("name", ENDS_OF_0)
def test_an_end_of_0(name: str) -> None:
    window, shape = ENDS_OF_0[name]
    graph = nnef_grad.loads(document(f"y = slice(x, {window});"))
    assert graph.outputs[0].shape == shape


@pytest.mark.parametrize("name", READ_BY_TRACT)
def test_an_end_of_0_in_tract(name: str, tmp_path: Any) -> None:
    needs("tract")
    window, _ = ENDS_OF_0[name]
    text = document(f"y = slice(x, {window});")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "graph.nnef").write_text(text)
    fed = {"x": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)}
    (outcome,) = run("tract", [Stored(tmp_path / "model", fed)])
    wanted = nnef_grad.evaluate(nnef_grad.loads(text), fed)
    verdict = compare(outcome, wanted, 1e-6)
    assert verdict.word == "ok", verdict.detail


def test_a_computed_end_of_0_leaves_a_gradient_of_zeros() -> None:
    text = document(
        "part = slice(x, axes = [1], begin = [0], end = [zero]);"
        " y = concat([part, x * x], axis = 1);"
    )
    fed = {"x": np.ones((3, 4)), "grad_y": np.arange(12.0).reshape(3, 4)}
    backward = nnef_grad.differentiate(nnef_grad.loads(text))
    found = nnef_grad.evaluate(backward, fed)["grad_x"]
    assert np.array_equal(found, 2 * fed["grad_y"])


def test_a_begin_that_has_no_number() -> None:
    text = document("y = slice(x, axes = [0], begin = [sub(n, 1)], end = [0]);", "B")
    with pytest.raises(NnefGradError, match="write B for 0") as caught:
        nnef_grad.loads(text)
    assert caught.value.span is not None
    assert caught.value.span.text == "slice"
    assert nnef_grad.loads(text, symbols={"B": 3}).outputs[0].shape == (1, 4)


LAST_BUT_ONE = {
    "slice": "part = slice(x * x, axes = [0], begin = [0], end = [sub(n, 1)]);"
    " y = sum_reduce(part, axes = [0]);",
    "concat": "part = slice(x * x, axes = [0], begin = [0], end = [sub(n, 1)]);"
    " y = concat([part, x], axis = 0);",
    "of_two": "two = concat([x * x, x], axis = 0);"
    " part = slice(two, axes = [0], begin = [0], end = [sub(n, 1)]);"
    " y = sum_reduce(part, axes = [0]);",
}


@pytest.mark.parametrize("name", LAST_BUT_ONE)
def test_an_end_that_is_0_for_one_number(name: str) -> None:
    text = document(LAST_BUT_ONE[name], "B")
    backward = nnef_grad.differentiate(nnef_grad.loads(text)).graph
    compiled = find_runtime("tract").compile(backward, {})
    for batch in (1, 3, 8):
        fed = drawn(with_numbers(backward, {"B": batch}), batch)
        found = nnef_grad.evaluate(backward, fed)["grad_x"]
        (in_tract,) = compiled([fed[n].astype("f4") for n in backward.input_names])
        assert np.allclose(in_tract, found, atol=1e-5), batch
        if batch > 1:
            sized = nnef_grad.loads(text, symbols={"B": batch})
            wanted = nnef_grad.evaluate(nnef_grad.differentiate(sized), fed)
            assert np.allclose(found, wanted["grad_x"])


def drawn(graph: nnef_grad.Graph, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    pairs = zip(graph.input_names, graph.inputs, strict=True)
    return {name: random.standard_normal(t.shape) for name, t in pairs}


@pytest.mark.parametrize("operation", ["sub(n, 1)", "add(n, -1)", "neg(sub(1, n))"])
def test_arithmetic_of_integers_with_symbols(operation: str) -> None:
    text = document(f"y = slice(x, axes = [0], begin = [0], end = [{operation}]);", "B")
    (y,) = nnef_grad.loads(text.replace("    zero = sub(n, 3);\n", "")).outputs
    assert str(y.shape) == "(B - 1, 4)"
