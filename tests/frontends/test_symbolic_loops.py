"""Loops whose batch, or whose number of steps, is a symbol: one backward document for all
numbers, whose gradients are those of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from support.symbolic_loops import CELLS, FEATURES, Cell, States, document

import nnef_grad
from nnef_grad import interop
from nnef_grad.base.errors import NnefGradError
from nnef_grad.commandline.cli import main
from nnef_grad.graph.ir import Graph
from nnef_grad.graph.symbols import symbols, with_numbers
from nnef_grad.runtimes import find_runtime


def in_torch(
    cell: Cell, axis: int, chunk: int, fed: Mapping[str, Any], data: Mapping[str, Any]
) -> dict[str, Any]:
    """The gradients of all inputs and variables, in double precision."""
    leaves = {
        name: torch.tensor(np.asarray(array, np.float64), requires_grad=True)
        for name, array in {**fed, **data}.items()
        if not name.startswith("grad_")
    }
    parts = list(leaves["x"].split(abs(chunk), dim=axis))
    states: States = tuple(leaves[name] for name in cell.states)
    rows = []
    for part in parts[:: 1 if chunk > 0 else -1]:
        states = cell.step(part.movedim(axis, 1).flatten(1), states, leaves)
        rows.append(states[0])
    results = {
        "y": torch.stack(rows[:: 1 if chunk > 0 else -1], axis),
        **{f"last_{n}": s for n, s in zip(cell.states, states, strict=True)},
    }
    loss = sum(
        (result * torch.tensor(fed[f"grad_{name}"])).sum()
        for name, result in results.items()
    )
    assert isinstance(loss, torch.Tensor)
    found = torch.autograd.grad(loss, [*leaves.values()])
    return {f"grad_{n}": g.numpy() for n, g in zip(leaves, found, strict=True)}


def data_of(graph: Graph) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        label: (random.standard_normal(graph.tensors[name].shape) / 2).astype("f4")
        for name, label in graph.labels.items()
    }


def drawn(graph: Graph, numbers: Mapping[str, int]) -> dict[str, Any]:
    random = np.random.default_rng(sum(numbers.values()))
    sized = with_numbers(graph, numbers)
    pairs = zip(sized.input_names, sized.inputs, strict=True)
    return {name: random.standard_normal(t.shape) for name, t in pairs}


def agree(found: Mapping[str, Any], wanted: Mapping[str, Any], most: float) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].shape == array.shape, name
        error = np.abs(found[name] - array).max()
        assert error <= most * (1 + np.abs(array).max()), (name, error)


every_cell = pytest.mark.parametrize("cell", CELLS.values(), ids=list(CELLS))
every_way = pytest.mark.parametrize(
    ("axis", "chunk"), [(1, 1), (1, -1), (0, 1), (0, -1), (1, 2), (0, -3)]
)


@every_way
@every_cell
@pytest.mark.parametrize("unroll", [0, 1000], ids=["loop", "steps"])
def test_any_batch(cell: Cell, axis: int, chunk: int, unroll: int) -> None:
    graph = nnef_grad.loads(document(cell, 6, axis, chunk), unroll=unroll)
    assert ("tract_core_scan" in nnef_grad.dumps(graph)) == (unroll == 0)
    numbers = [{"B": batch} for batch in (1, 3, 8)]
    is_right_for(numbers, graph, partial(in_torch, cell, axis, chunk))


@every_way
@every_cell
def test_any_number_of_steps(cell: Cell, axis: int, chunk: int) -> None:
    """The steps of a chunk of several elements are a multiple of them."""
    steps = "T" if abs(chunk) == 1 else f"{abs(chunk)} * T"
    graph = nnef_grad.loads(document(cell, steps, axis, chunk))
    assert symbols(graph) == ["B", "T"]
    numbers = [{"B": b, "T": t} for b, t in ((1, 2), (3, 5), (8, 9))]
    is_right_for(numbers, graph, partial(in_torch, cell, axis, chunk))


def is_right_for(
    numbers: list[dict[str, int]], graph: Graph, oracle: Callable[..., dict[str, Any]]
) -> None:
    """Whether one backward graph has the gradients of torch, in the interpreter, in tract,
    in ONNX Runtime, and after it was written and read again.
    """
    backward, data = nnef_grad.differentiate(graph).graph, data_of(graph)
    again = nnef_grad.loads(nnef_grad.dumps(backward), unroll=0)
    for given in numbers:
        fed = drawn(backward, given)
        wanted = oracle(fed, data)
        agree(nnef_grad.evaluate(backward, fed, data), wanted, 1e-10)
        agree(nnef_grad.evaluate(again, fed, data), wanted, 1e-10)
    agree_in_runtimes(numbers, backward, data, oracle)


def agree_in_runtimes(
    numbers: list[dict[str, int]],
    backward: Graph,
    data: Mapping[str, Any],
    oracle: Callable[..., dict[str, Any]],
) -> None:
    """Compares the runtimes that have symbols with an oracle."""
    for runtime in ("tract", "onnxruntime", "openvino"):
        run = find_runtime(runtime).compile(backward, data)
        for given in numbers:
            fed = drawn(backward, given)
            arrays = [fed[name].astype(np.float32) for name in backward.input_names]
            named = zip(backward.output_names, run(arrays), strict=True)
            agree(dict(named), oracle(fed, data), 1e-5)


@every_cell
def test_a_second_derivative(cell: Cell) -> None:
    first = nnef_grad.differentiate(nnef_grad.loads(document(cell, "T")), wrt=["x"])
    second = nnef_grad.differentiate(first.graph, wrt=["x"]).graph
    data = data_of(second)
    for numbers in ({"B": 1, "T": 2}, {"B": 3, "T": 5}):
        sized = nnef_grad.loads(document(cell, "T"), symbols=numbers)
        once = nnef_grad.differentiate(sized, wrt=["x"])
        twice = nnef_grad.differentiate(once.graph, wrt=["x"])
        fed = drawn(second, numbers)
        wanted = nnef_grad.evaluate(twice, fed, data)
        agree(nnef_grad.evaluate(second, fed, data), wanted, 1e-10)


@pytest.mark.parametrize("axis", [0, 1])
def test_copies_that_are_collected(axis: int) -> None:
    """The gradient of a sum repeats the one of the sum, in a chunk of several elements."""
    summed = f"squeeze(sum_reduce(xs, axes = [{axis}]), axes = [{axis}])"
    text = document(CELLS["rnn"], "2 * T", axis, chunk=2)
    whole = text.replace(f"[B, {2 * FEATURES}]", f"[B, {FEATURES}]")
    whole = whole.replace(f"shape = [{2 * FEATURES}, ", f"shape = [{FEATURES}, ")
    start, end = whole.index("reshape("), whole.index(";", whole.index("reshape("))
    backward = nnef_grad.differentiate(
        nnef_grad.loads(whole[:start] + summed + whole[end:])
    ).graph
    data = data_of(backward)
    numbers = [{"B": 1, "T": 2}, {"B": 3, "T": 5}]
    agree_in_runtimes(numbers, backward, data, partial(nnef_grad.evaluate, backward))


UNREAD = """version 1.0;
extension tract_registry tract_core;
extension tract_symbol T;
fragment step( s: tensor<scalar>, x: tensor<scalar>, w: tensor<scalar> ) -> ( n: tensor<scalar>, y: tensor<scalar> )
{
    n = 0.5 * s + w;
    y = copy(s);
}
graph net( x, s ) -> ( ys, last )
{
    x = tract_core_external(shape = [2, T, 3], datum_type = 'f32');
    s = tract_core_external(shape = [2, 1, 3], datum_type = 'f32');
    w = variable(label = 'w', shape = [1, 1, 3]);
    ys, last = tract_core_scan(body = 'step', scan = [('x', x, 1, 1)], full = [('w', w)],
        state = [('s', s, 'n')], output = [('y', 'full', 1, 1), ('n', 'last', 0, 1)]);
}
"""


@pytest.mark.parametrize("outputs", [["ys", "last"], ["last"]])
def test_a_loop_that_only_counts_its_steps(outputs: list[str]) -> None:
    """What it scans tells how many there are, in its derivatives too."""
    first = nnef_grad.differentiate(
        nnef_grad.loads(UNREAD), wrt=["s", "w"], outputs=outputs
    )
    second = nnef_grad.differentiate(first.graph, wrt="inputs").graph
    data = data_of(second)
    run = find_runtime("onnxruntime").compile(second, data)
    for numbers in ({"T": 2}, {"T": 5}):
        sized = nnef_grad.loads(UNREAD, symbols=numbers)
        once = nnef_grad.differentiate(sized, wrt=["s", "w"], outputs=outputs)
        twice = nnef_grad.differentiate(once.graph, wrt="inputs")
        fed = drawn(second, numbers)
        wanted = nnef_grad.evaluate(twice, fed, data)
        agree(nnef_grad.evaluate(second, fed, data), wanted, 1e-10)
        arrays = [fed[name].astype(np.float32) for name in second.input_names]
        agree(dict(zip(second.output_names, run(arrays), strict=True)), wanted, 1e-4)


def test_steps_that_are_not_known() -> None:
    graph = nnef_grad.loads(document(CELLS["rnn"], "T", batch="3"))
    with pytest.raises(NnefGradError) as caught:
        nnef_grad.lower(nnef_grad.differentiate(graph).graph, "portable")
    assert caught.value.problems[0].remedy == "symbol"


def test_a_recurrent_onnx_file_of_an_open_length_compiles_to_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the dialect of its symbols, which is said, and is read again."""
    graph = nnef_grad.loads(document(CELLS["lstm"], "T", batch="3"))
    interop.to_onnx(graph, tmp_path / "rnn.onnx", data_of(graph))
    monkeypatch.chdir(tmp_path)
    made = CliRunner().invoke(main, ["rnn.onnx", "-o", "rnn_bwd.nnef"])
    assert made.exit_code == 0
    assert "is in OUT as tract_core_scan" in made.stderr
    backward = nnef_grad.differentiate(interop.from_onnx("rnn.onnx").graph)
    assert nnef_grad.load("rnn_bwd.nnef") == backward.graph
    for words in (["--target", "tract", "-o", "t.nnef"], ["-o", "rnn_bwd.onnx"]):
        assert "tract_core" not in CliRunner().invoke(main, ["rnn.onnx", *words]).stderr


def test_chunks_that_must_end_with_it() -> None:
    graph = nnef_grad.loads(document(CELLS["rnn"], "T", chunk=2))
    assert "T is a multiple of 2, for 'tract_core_scan'" in graph.facts


def test_a_target_without_loops_needs_the_number(tmp_path: Path) -> None:
    path, out = tmp_path / "net.nnef", tmp_path / "out.nnef"
    path.write_text(document(CELLS["gru"], "T"))
    words = [str(path), "-o", str(out), "--target", "portable"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "which has no number: give it one with --symbol" in result.stderr
    assert not out.exists()
    numbers = ["--symbol", "B=2", "--symbol", "T=3"]
    assert CliRunner().invoke(main, [*words, *numbers]).exit_code == 0
    assert "tract_core_scan" not in out.read_text()


OPEN_INSIDE = """version 1.0;
extension tract_registry tract_core;
extension tract_symbol B;
fragment step( s: tensor<scalar>, x: tensor<scalar> ) -> ( n: tensor<scalar>, y: tensor<scalar> )
{
    wide = tract_core_broadcast(x, shape = [1, B]);
    n = add(s, sum_reduce(wide, axes = [1]));
    y = mul(n, 2.0);
}
graph net( x, s, z ) -> ( y, doubled )
{
    x = tract_core_external(shape = [5, 1], datum_type = 'f32');
    s = tract_core_external(shape = [1, 1], datum_type = 'f32');
    z = tract_core_external(shape = [B, 2], datum_type = 'f32');
    y = tract_core_scan('step', [("x", x, 0, 1)], [], [("s", s, "n")], [("y", "full", 0, 1)]);
    doubled = mul(z, 2.0);
}
"""


def test_a_symbol_that_no_input_of_the_body_has_gets_its_number() -> None:
    graph = with_numbers(nnef_grad.loads(OPEN_INSIDE, unroll=1), {"B": 3})
    x = np.arange(5.0).reshape(5, 1)
    fed = {"x": x, "s": np.full((1, 1), 0.5), "z": np.ones((3, 2))}
    found = nnef_grad.evaluate(graph, fed)["y"]
    np.testing.assert_array_equal(found, 2 * (0.5 + 3 * np.cumsum(x, axis=0)))
