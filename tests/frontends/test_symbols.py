"""Symbols as extents: one backward graph for every size of the batch."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from support.runtimes import needs
from support.symbolic_models import MODELS, document

import nnef_grad
from nnef_grad.base.errors import NnefGradError, UsageError
from nnef_grad.commandline.cli import main
from nnef_grad.graph.symbols import numbers_of, symbols, with_numbers
from nnef_grad.runtimes import find_runtime
from nnef_grad.targets import lower
from nnef_grad.training import training_step

BATCHES = (1, 3, 8)


def drawn(graph: nnef_grad.Graph, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    pairs = zip(graph.input_names, graph.inputs, strict=True)
    return {name: random.standard_normal(t.shape) for name, t in pairs}


def data_of(graph: nnef_grad.Graph) -> dict[str, Any]:
    random = np.random.default_rng(0)
    shapes = {label: graph.tensors[name].shape for name, label in graph.labels.items()}
    return {
        label: random.standard_normal(shape).astype(np.float32) / 2
        for label, shape in shapes.items()
    }


def agree(found: Mapping[str, Any], wanted: Mapping[str, Any], most: float) -> None:
    for name, array in wanted.items():
        assert found[name].shape == array.shape, name
        assert np.abs(found[name] - array).max() <= most * (1 + np.abs(array).max())


@pytest.mark.parametrize("model", MODELS)
def test_the_gradients_are_those_of_each_size(model: str) -> None:
    text = document(MODELS[model])
    graph = nnef_grad.loads(text)
    backward, data = nnef_grad.differentiate(graph), data_of(graph)
    for batch in BATCHES:
        sized = nnef_grad.differentiate(nnef_grad.loads(text, symbols={"B": batch}))
        fed = drawn(sized.graph, batch)
        wanted = nnef_grad.evaluate(sized, fed, data)
        agree(nnef_grad.evaluate(backward, fed, data), wanted, 1e-12)


@pytest.mark.parametrize("runtime", ["tract", "onnxruntime", "openvino"])
@pytest.mark.parametrize("model", MODELS)
def test_one_document_in_a_runtime(model: str, runtime: str) -> None:
    pytest.importorskip(runtime)
    graph = nnef_grad.loads(document(MODELS[model]))
    backward, data = nnef_grad.differentiate(graph).graph, data_of(graph)
    run = find_runtime(runtime).compile(backward, data)
    for batch in BATCHES:
        fed = drawn(with_numbers(backward, {"B": batch}), batch)
        arrays = [fed[name].astype(np.float32) for name in backward.input_names]
        found = dict(zip(backward.output_names, run(arrays), strict=True))
        agree(found, nnef_grad.evaluate(backward, fed, data), 1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_what_is_written_is_read(model: str) -> None:
    backward = nnef_grad.differentiate(nnef_grad.loads(document(MODELS[model]))).graph
    for graph in (backward, *(lower(backward, t).graph for t in ("tract", "onnx"))):
        again = nnef_grad.loads(nnef_grad.dumps(graph), dialect="tract")
        assert [t.shape for t in again.outputs] == [t.shape for t in graph.outputs]
        assert symbols(again) == ["B"]


def test_a_second_derivative() -> None:
    graph = nnef_grad.loads(document(MODELS["mean_of_all"]))
    first = nnef_grad.differentiate(graph, wrt=["x"])
    second = nnef_grad.differentiate(first.graph, wrt=["x"])
    data = data_of(graph)
    for batch in BATCHES:
        fed = drawn(with_numbers(second.graph, {"B": batch}), batch)
        sized = with_numbers(second.graph, {"B": batch})
        wanted = nnef_grad.evaluate(sized, fed, data)
        agree(nnef_grad.evaluate(second, fed, data), wanted, 1e-12)


def test_two_symbols() -> None:
    text = document(
        """x = external(shape = [B, S, 4]);
        t = reshape(x, shape = [B * S, 4]);
        s = softmax(matmul(x, x, transposeB = true), axes = [2]);
        y = reshape(tanh(t), shape = [B, S, 4]) + matmul(s, x);"""
    ).replace("B;\n", "B;\nextension tract_symbol S;\n", 1)
    backward = nnef_grad.differentiate(nnef_grad.loads(text))
    assert symbols(backward.graph) == ["B", "S"]
    for batch, length in ((1, 5), (3, 2)):
        numbers = {"B": batch, "S": length}
        sized = nnef_grad.differentiate(nnef_grad.loads(text, symbols=numbers))
        fed = drawn(sized.graph, batch)
        agree(nnef_grad.evaluate(backward, fed), nnef_grad.evaluate(sized, fed), 1e-12)


# ---- The numbers of symbols ----


def test_a_graph_with_numbers_in_the_place_of_symbols() -> None:
    text = document(MODELS["rows"])
    sized = with_numbers(nnef_grad.loads(text), {"B": 3, "other": 1})
    wanted = nnef_grad.loads(text, symbols={"B": 3})
    assert sized == wanted
    shapes = [{n: t.shape for n, t in g.tensors.items()} for g in (sized, wanted)]
    assert shapes[0] == shapes[1]


def test_the_numbers_that_shapes_give() -> None:
    backward = nnef_grad.differentiate(nnef_grad.loads(document(MODELS["flat"]))).graph
    assert numbers_of(backward, {"x": (5, 3), "grad_y": (20,)}) == {"B": 5}
    assert numbers_of(backward, {"x": (5,)}) == {}
    concat = nnef_grad.loads(document("x = external(shape = [B, B]); y = relu(x);"))
    with pytest.raises(UsageError, match="'B' is both 2 and 3"):
        numbers_of(concat, {"x": (2, 3)})


# ---- Mistakes ----

OPEN = "x = external(shape = [B, 4]);\n    "
REFUSED = {
    "[y] = unstack(x, axis = 0);": "unstack: whether B is greater",
}


LEARNED = {
    "[y, z] = split(x, axis = 0, ratios = [1, 1]);": "B is a multiple of 2",
    "y = reshape(x, shape = [3, -1]);": "B is a multiple of 3",
    "y = squeeze(slice(x, axes = [0], begin = [2], end = [3]), axes = [0]);": "B is at least 3",
    "y = matmul(transpose(x, axes = [1, 0]), variable(shape = [6, 2], label = 'w'));": "B is 6",
}


@pytest.mark.parametrize("statement", LEARNED)
def test_what_an_operation_says_of_a_symbol(statement: str) -> None:
    graph = nnef_grad.loads(document(OPEN + statement))
    name = statement.split("(")[0].split()[-1]
    (fact,) = graph.facts
    assert fact == f"{LEARNED[statement]}, for '{name}'"
    assert f"#   {fact}" in nnef_grad.dumps(graph)
    backward = nnef_grad.differentiate(graph).graph
    assert backward.facts == graph.facts


def test_one_fact_behind_another() -> None:
    """What halves are known to be holds for the halves of these, in gradients as well."""
    text = """version 1.0;
    extension tract_registry tract_core;
    extension tract_symbol T;
    graph net( x ) -> ( y )
    {
        x = external(shape = [1, 3, T]);
        a = max_pool(x, size = [1, 1, 4], border = 'constant', stride = [1, 1, 2]);
        b = reshape(a, shape = [tract_core_shape_of(a)[2] / 2, 2], axis_start = 2, axis_count = 1);
        c = mean_reduce(b, axes = [3]);
        d = squeeze(c, axes = [3]);
        e = max_pool(d, size = [1, 1, 2], border = 'ignore', stride = [1, 1, 2], padding = [(0, 0), (0, 0), (0, 0)]);
        f = nearest_upsample(e, factor = [2]);
        y = add(d, f);
    }"""
    graph = nnef_grad.loads(text)
    assert [fact.split(",")[0] for fact in graph.facts[-2:]] == [
        "(T + 1)/2 is 4*((T + 1)/8)",
        "(T + 1)/4 is 2*((T + 1)/8)",
    ]
    told = nnef_grad.check(graph, nnef_grad.differentiate(graph)).conclusion
    assert told.endswith("agree with central differences")


@pytest.mark.parametrize("other", "CDEFGHIJKLMNOPQRSTUV")
def test_facts_name_extents_in_the_order_of_the_operands(other: str) -> None:
    """A document is the same each time that it is made."""
    text = document(f"{OPEN}y = add(x, external(shape = [{other}, 4]));")
    symbol = f"extension tract_symbol {other};\n"
    (fact,) = nnef_grad.loads(text.replace("B;\n", f"B;\n{symbol}", 1)).facts
    assert fact == f"B and {other} are equal, or one is 1, for 'add'"


def place(error: NnefGradError) -> str:
    assert error.span is not None
    return error.span.text


@pytest.mark.parametrize("statement", REFUSED)
def test_an_operation_that_needs_the_number(statement: str) -> None:
    with pytest.raises(NnefGradError) as caught:
        nnef_grad.loads(document(OPEN + statement))
    assert REFUSED[statement] in caught.value.message
    assert place(caught.value) == REFUSED[statement].partition(":")[0]
    assert caught.value.problems[0].remedy == "symbol"


@pytest.mark.parametrize("target", ["khronos", "tract-standard", "portable"])
def test_targets_without_symbols(target: str) -> None:
    backward = nnef_grad.differentiate(nnef_grad.loads(document(MODELS["softmax"])))
    with pytest.raises(NnefGradError, match="the extent 'B', which has no number"):
        lower(backward.graph, target)


def test_the_command_names_the_cure(tmp_path: Path) -> None:
    path, out = tmp_path / "model.nnef", tmp_path / "out.nnef"
    path.write_text(document(MODELS["softmax"]))
    words = [str(path), "-o", str(out), "--target", "portable"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "'B', which has no number: give it one with --symbol" in result.stderr
    assert not out.exists()
    *_, command = result.stderr.strip().splitlines()
    _, _, pasted = command.partition("as an example: ")
    assert shlex.split(pasted)[-len(words) - 2 :] == [*words, "--symbol", "B=1"]
    assert CliRunner().invoke(main, [*words, "--symbol", "B=2"]).exit_code == 0
    assert "shape = [2, 3]" in out.read_text()


def test_the_command_gives_all_sizes_at_once(tmp_path: Path) -> None:
    """They are such that the network takes them."""
    path = tmp_path / "a model.nnef"
    text = (
        "x = external(shape = [B, S, 4]); [u, y] = split(x, axis = 1, ratios = [1, 2]);"
    )
    path.write_text(document(text))
    result = CliRunner().invoke(main, [str(path), "--format", "json", "--jacobian"])
    assert result.exit_code == 2
    command = json.loads(result.stderr)["command"]
    assert shlex.split(command)[-4:] == ["--symbol", "B=1", "--symbol", "S=66"]


@pytest.mark.parametrize("option", ["--stats", "--jacobian"])
def test_what_only_numbers_have(option: str, tmp_path: Path) -> None:
    path = tmp_path / "model.nnef"
    path.write_text(document(MODELS["softmax"]))
    result = CliRunner().invoke(main, [str(path), option])
    assert result.exit_code == 2
    assert "the extent 'B', which has no number: give it one" in result.stderr
    assert CliRunner().invoke(main, [str(path), option, "--batch", "2"]).exit_code == 0


def test_channels_of_pools_in_tract() -> None:
    pool = "y = max_pool(x, size = [1, 1, 2, 2], border = 'ignore');"
    text = document(f"x = external(shape = [2, B, 4, 4]); {pool}")
    with pytest.raises(NnefGradError, match="max_pool: the extent B has") as caught:
        lower(nnef_grad.loads(text), "tract")
    assert place(caught.value) == "max_pool"


# ---- What is made of gradients ----


@pytest.mark.parametrize("model", ["mean", "classifier"])
def test_two_halves(model: str) -> None:
    graph = nnef_grad.loads(document(MODELS[model]))
    backward, data = nnef_grad.differentiate(graph), data_of(graph)
    halves = nnef_grad.split(graph, backward)
    for batch in BATCHES:
        fed = drawn(with_numbers(backward.graph, {"B": batch}), batch)
        kept = nnef_grad.evaluate(halves.forward, {"x": fed["x"]}, data)
        rest = {name: (fed | kept)[name] for name in halves.backward.input_names}
        wanted = nnef_grad.evaluate(backward, fed, data)
        agree(nnef_grad.evaluate(halves.backward, rest, data), wanted, 1e-12)


# ---- Central differences ----


def test_gradients_are_checked_at_numbers() -> None:
    graph = nnef_grad.loads(document(MODELS["mean"]))
    backward = nnef_grad.differentiate(graph)
    checked = nnef_grad.check(graph, backward)
    assert checked.passed
    assert {g.shape for g in checked.gradients} >= {(8, 3)}
    given = nnef_grad.check(graph, backward, inputs={"x": np.ones((2, 3))})
    assert {g.shape for g in given.gradients} >= {(2, 3)}


TWO_SIZES = """version 1.0;
extension tract_registry tract_core;
extension tract_symbol B;
extension tract_symbol T;
graph net(x) -> (y)
{
    x = external(shape = [B, T]);
"""


@pytest.mark.parametrize(
    ("part", "found"),
    [
        # Both sizes together are a multiple of 35.
        ("y = tanh(reshape(x, shape = [-1, 35]));", (35, 35)),
        # T is 80, or 1.
        ("y = x * variable(shape = [1, 80], label = 'w');", (8, 80)),
    ],
)
def test_gradients_are_checked_where_sizes_fit(
    part: str, found: tuple[int, ...]
) -> None:
    graph = nnef_grad.loads(f"{TWO_SIZES} {part} }}")
    checked = nnef_grad.check(graph, nnef_grad.differentiate(graph, wrt="inputs"))
    assert checked.passed
    assert [g.shape for g in checked.gradients] == [found]


# ---- Training ----

NORMALIZED = """version 1.0;
extension tract_registry tract_core;
extension tract_symbol B;
graph net(x) -> (y)
{
    x = tract_core_external(shape = [B, 2, 3], datum_type = 'f32');
    w = variable<scalar>(label = 'w', shape = [4, 2, 1]);
    mean = variable<scalar>(label = 'mean', shape = [1, 4]);
    variance = variable<scalar>(label = 'variance', shape = [1, 4]);
    offset = variable<scalar>(label = 'offset', shape = [1, 4]);
    scale = variable<scalar>(label = 'scale', shape = [1, 4]);
    h = conv(x, w, 0.0, padding = [(0, 0)]);
    n = batch_normalization(h, mean, variance, offset, scale, epsilon = 1e-5);
    y = tanh(n);
}
"""


@pytest.mark.parametrize("options", [{}, {"batch_statistics": 0.3}])
@pytest.mark.parametrize("loss", ["huber", "huber(reduction = 'batchmean')"])
@pytest.mark.parametrize("runtime", ["numpy", "tract", "onnxruntime"])
def test_batches_of_changing_size(
    runtime: str, loss: str, options: dict[str, Any]
) -> None:
    """One step, next to one for each size."""
    needs(*{"onnxruntime": ["onnx"], "tract": ["tract"]}.get(runtime, []))
    random = np.random.default_rng(0)
    labels = {"w": (4, 2, 1), **dict.fromkeys(("mean", "offset", "scale"), (1, 4))}
    data = {k: random.standard_normal(n) for k, n in labels.items()}
    data["variance"] = random.random((1, 4)) + 0.5

    def step(values: Mapping[str, Any], batch: int | None = None) -> Any:
        symbols = None if batch is None else {"B": batch}
        graph = nnef_grad.loads(NORMALIZED, symbols=symbols)
        return training_step(
            graph, data=values, loss=loss, optimizer="sgd", target="tract", **options
        )

    batches = [
        (random.standard_normal((n, 2, 3)), random.standard_normal((n, 4, 3)))
        for n in (3, 1, 5, 3)
    ]
    whole = nnef_grad.training.run(
        step(data), batches, runtime=runtime, learning_rate=0.1
    )
    losses, values = list(whole), data
    for batch, found in zip(batches, losses, strict=True):
        one = step(values, len(batch[0]))
        sized = nnef_grad.training.run(
            one, [batch], runtime="numpy", dtype=np.float64, learning_rate=0.1
        )
        assert found == pytest.approx(next(sized), rel=1e-5)
        values = {**sized.data}
    agree({k: whole.data[k] for k in data}, {k: values[k] for k in data}, 1e-4)


def test_batches_that_do_not_fit() -> None:
    graph = nnef_grad.loads(NORMALIZED)
    data = {op.attributes["label"]: np.ones(op.outputs[0].shape) for op in graph.operations if op.name == "variable"}  # fmt: skip
    step = training_step(graph, data=data, loss="huber", optimizer="sgd")
    for x, y, message in (
        ((3, 2, 3), (2, 4, 3), "'B' is both 3 and 2"),
        ((3, 2, 4), (3, 4, 3), r"'x' has the shape \[B, 2, 3\], and not \[3, 2, 4\]"),
    ):
        batch = np.zeros(x), np.zeros(y)
        training = nnef_grad.training.run(
            step, [batch], runtime="numpy", learning_rate=0.1
        )
        with pytest.raises(nnef_grad.UsageError, match=message):
            next(training)


TONES = Path(__file__).parents[2] / "samples" / "exported" / "tones"


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("softmax_cross_entropy", {}),
        ("huber", {"batch_statistics": 0.1}),
        ("mean_squared_error", {"clip_norm": 1.0, "l2": 0.1}),
    ],
)
def test_one_step_for_every_batch(loss: str, options: dict[str, Any]) -> None:
    random = np.random.default_rng(0)

    def step(symbols: dict[str, int] | None) -> Any:
        graph = nnef_grad.load(TONES, symbols=symbols)
        data = nnef_grad.load_data(TONES)
        settings = {"optimizer": "adam", "data": data, "state": "inputs", **options}
        return training_step(graph, loss=loss, **settings)

    whole = step(None)
    run = find_runtime("tract").compile(whole.graph, whole.data)
    for batch in BATCHES:
        sized = step({"B": batch})
        pairs = zip(sized.graph.input_names, sized.graph.inputs, strict=True)
        fed = {n: np.abs(np.array(random.standard_normal(t.shape))) for n, t in pairs}
        wanted = nnef_grad.evaluate(sized.graph, fed, sized.data)
        agree(nnef_grad.evaluate(whole.graph, fed, whole.data), wanted, 1e-12)
        found = run([np.array(fed[n], np.float32) for n in whole.graph.input_names])
        agree(dict(zip(wanted, found, strict=True)), wanted, 1e-4)


# ---- Numbers for symbols ----

HEAD = "version 1.0;\nextension tract_registry tract_core;\n"


@pytest.mark.parametrize(
    "statement",
    [
        "y = reshape(x, shape = [tract_core_shape_of(x)[0], 2, 2]);",
        "y = slice(x, axes = [0], begin = [0], end = tract_core_shape_of(x)[0]);",
        "y = tile(x, repeats = [tract_core_shape_of(x)[0], 1]);",
        "y = tract_core_dyn_slice(x, 0, tract_core_shape_of(x)[0], 4, axis = 0);",
        "z = relu(x); y = tract_core_broadcast(0.5, shape = [1, S/2 + 1]);",
    ],
)
def test_an_extent_as_an_attribute_with_and_without_a_number(statement: str) -> None:
    body = f"x = tract_core_external(shape = [S, 4], datum_type = 'f32'); {statement}"
    outputs = "y, z" if "z =" in statement else "y"
    text = f"{HEAD}extension tract_symbol S;\ngraph net(x) -> ({outputs}) {{ {body} }}"
    for numbers in ({}, {"S": 2}):
        graph = nnef_grad.loads(text, symbols=numbers)
        checked = nnef_grad.check(graph, nnef_grad.differentiate(graph))
        assert checked.passed
        assert symbols(graph) == ([] if numbers else ["S"])


CACHE = """{head}extension tract_symbol P;
extension tract_assert P>=0;
graph net(x, past) -> (y, all) {{
    x = tract_core_external(shape = [1, 3, 4], datum_type = 'f32');
    past = tract_core_external(shape = [1, P, 4], datum_type = 'f32');
    all = concat([past, x], axis = 1);
    moved = transpose(past, axes = [0, 2, 1]);
    both = concat([moved, transpose(x, axes = [0, 2, 1])], axis = 2);
    y = tract_core_einsum([all, both], expr = 'bik,bkj->bij');
}}
"""


def test_a_cache_of_length_0_is_left_out() -> None:
    text = CACHE.format(head=HEAD)
    graph = nnef_grad.loads(text, symbols={"P": 0})
    assert graph.input_names == ("x",)
    (warning,) = graph.warnings
    assert (
        warning.message == "the input 'past' has no elements: the graph is without it"
    )
    x = np.random.default_rng(1).normal(size=(1, 3, 4))
    made = nnef_grad.evaluate(graph, {"x": x})
    np.testing.assert_allclose(made["y"], x @ x.transpose(0, 2, 1))
    np.testing.assert_allclose(made["all"], x)
    assert nnef_grad.check(graph, nnef_grad.differentiate(graph)).passed
    open_ = nnef_grad.loads(text)
    assert open_.input_names == ("x", "past")


def test_the_command_line_takes_a_cache_of_length_0(tmp_path: Path) -> None:
    model = tmp_path / "model.nnef"
    model.write_text(CACHE.format(head=HEAD))
    words = [str(model), "-o", "-", "--symbol", "P=0"]
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 0, told.output
    assert "graph net_backward( x, grad_y, grad_all ) -> ( grad_x )" in told.stdout
