"""ONNX files of a few kilobytes that ask for gigabytes or hours, or that are not valid: each is
refused with a message, before that is computed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from nnef_grad import interop
from nnef_grad.base.errors import UnsupportedError
from nnef_grad.commandline.cli import main
from nnef_grad.commandline.step_cli import main as step_main

onnx: Any = import_module("onnx") if find_spec("onnx") else None
pytestmark = pytest.mark.skipif(not onnx, reason="the tests of ONNX files need onnx")

FLOAT, INT, BOOL = 1, 7, 9
INPUT = ("x", FLOAT, [2, 3])
TEXT = "version 1.0;\ngraph g( x ) -> ( y ) { x = external(shape = [2]); y = exp(x); }"
EVIL = "\x1b[31mred\r\nerror: another\u202e\x9b"


def make(kind: str, operands: str, results: str, **attributes: Any) -> Any:
    return onnx.helper.make_node(kind, operands.split(), results.split(), **attributes)


def value(name: str, kind: int = FLOAT, shape: Any = None) -> Any:
    return onnx.helper.make_tensor_value_info(name, kind, shape)


def model_of(
    nodes: Sequence[Any], data: Any = (), inputs: Any = (INPUT,), functions: Any = ()
) -> Any:
    arrays = [
        onnx.numpy_helper.from_array(np.asarray(a), k) for k, a in dict(data).items()
    ]
    values = [value(*given) for given in inputs]
    graph = onnx.helper.make_graph(nodes, "net", values, [value("y")], arrays)
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("own", 1)]
    return onnx.helper.make_model(
        graph, opset_imports=opsets, ir_version=8, functions=list(functions)
    )


def command(model: Any, *words: str) -> Result:
    """The command on a file in the folder of the test."""
    Path("model.onnx").write_bytes(model.SerializeToString())
    return CliRunner().invoke(main, ["model.onnx", *words])


def refused(model: Any, *words: str) -> str:
    """The message, one line for each problem."""
    result = command(model, "-o", "out", *words)
    assert result.exit_code == 2, result.stderr
    assert "bug" not in result.stderr
    assert not Path("out").exists()
    return result.stderr


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- Constants ----


def whole(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def computed(nodes: list[Any], data: Any) -> Any:
    """A model that adds the sum of `t`, which is computed of constants, to its input."""
    end = [
        make("ReduceSum", "t", "sum", keepdims=0),
        make("Cast", "sum", "f", to=FLOAT),
    ]
    return model_of([*nodes, *end, make("Add", "x f", "y")], data)


FAR = 10**9


def long_row() -> list[Any]:
    """Numbers along both axes of a table."""
    row = make("Range", "zero n one", "row")
    return [row, make("Unsqueeze", "row axis", "column")]


ROW_DATA = {
    "zero": np.int64(0),
    "n": np.int64(10**5),
    "one": np.int64(1),
    "axis": whole(1),
}
CONSTANTS: dict[str, tuple[Callable[[], list[Any]], Any]] = {
    "a shape": (lambda: [make("ConstantOfShape", "s", "t")], {"s": whole(FAR, 100)}),
    "a range": (
        lambda: [make("Range", "zero n one", "t")],
        {**ROW_DATA, "n": np.int64(10**11)},
    ),
    "a tile": (
        lambda: [make("Tile", "a n", "t")],
        {"a": whole(1, 2), "n": whole(FAR)},
    ),
    "broadcasting": (
        lambda: [make("Expand", "a n", "t")],
        {"a": whole(1), "n": whole(30_000, 30_000)},
    ),
    "one of many": (
        lambda: [make("OneHot", "a n v", "t")],
        {"a": whole(1), "n": np.int64(FAR), "v": whole(0, 1)},
    ),
    "padding": (lambda: [make("Pad", "a n", "t")], {"a": whole(1), "n": whole(0, FAR)}),
    "doubling": (
        lambda: [
            *[make("Concat", f"t{i} t{i}", f"t{i + 1}", axis=0) for i in range(40)],
            make("Identity", "t40", "t"),
        ],
        {"t0": whole(1, 2)},
    ),
    "a table of sums": (
        lambda: [*long_row(), make("Add", "row column", "t")],
        ROW_DATA,
    ),
    "a table of choices": (
        lambda: [
            *long_row(),
            make("Less", "one row", "is"),
            make("Where", "is row column", "t"),
        ],
        ROW_DATA,
    ),
    "an outer product": (
        lambda: [
            *long_row(),
            make("Unsqueeze", "row first", "rows"),
            make("MatMul", "column rows", "t"),
        ],
        {**ROW_DATA, "first": whole(0)},
    ),
    "a product": (
        lambda: [make("ConstantOfShape", "s", "a"), make("MatMul", "a a", "t")],
        {"s": whole(5000, 5000)},
    ),
    "a transposed convolution": (
        lambda: [
            make("ConstantOfShape", "s", "a"),
            make("ConvTranspose", "a a", "t", strides=[100_000, 100_000]),
        ],
        {"s": whole(1, 1, 2, 2)},
    ),
    "padding around a window": (
        lambda: [
            make("ConstantOfShape", "s", "a"),
            make("MaxPool", "a", "t", kernel_shape=[FAR], pads=[FAR - 1, 0]),
        ],
        {"s": whole(1, 1, 1)},
    ),
    "many sums": (
        lambda: [
            make("ConstantOfShape", "s", "t0"),
            *[make("Neg", f"t{i}", f"t{i + 1}") for i in range(2000)],
            make("Identity", "t2000", "t"),
        ],
        {"s": whole(1000, 1000)},
    ),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_computed_within_a_limit(name: str) -> None:
    nodes, data = CONSTANTS[name]
    found = refused(computed(nodes(), data))
    assert "computed while the model is read comes to more than 10" in found
    # It is said once, at the first node that is too much.
    assert found.count("\n") == 1


def test_what_a_file_holds_may_be_computed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes of weights pass a few operations before they are weights."""
    monkeypatch.setattr("nnef_grad.frontends.onnx.validity.MOST_WORK", 1000)
    chain = ("Cast", "Transpose", "Neg", "Abs")
    settings: list[dict[str, Any]] = [{"to": INT}, {}, {}, {}]
    nodes = [
        make(kind, f"t{i}", f"t{i + 1}", **attributes)
        for i, (kind, attributes) in enumerate(zip(chain, settings, strict=True))
    ]
    codes = np.arange(100_000).astype(np.int8).reshape(2, -1)
    fine = computed([*nodes, make("Identity", "t4", "t")], {"t0": codes})
    assert command(fine).exit_code == 0


def test_tables_of_inputs_are_made_within_a_limit() -> None:
    large = [("x", FLOAT, [40_000, 40_000])]
    assert "Trilu" in refused(model_of([make("Trilu", "x", "y")], inputs=large))
    images = [("x", FLOAT, [1, 1, 40_000, 40_000])]
    node = onnx.helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode="linear")
    sizes = {"s": whole(1, 1, 40_001, 40_001)}
    assert "comes to more than" in refused(model_of([node], sizes, images))
    sequence = [make("SplitToSequence", "x", "q"), make("SequenceAt", "q i", "y")]
    rows = [("x", FLOAT, [FAR])]
    found = refused(model_of(sequence, {"i": np.int64(0)}, rows))
    assert "it has more than 50000 parts" in found


def test_the_mean_of_nothing_has_no_warning() -> None:
    nodes = [make("ReduceMean", "nothing", "t", keepdims=0), make("Add", "x t", "y")]
    Path("model.onnx").write_bytes(
        model_of(nodes, {"nothing": np.zeros(0, np.float32)}).SerializeToString()
    )
    result = CliRunner().invoke(main, ["model.onnx"])
    assert result.exit_code == 0
    assert "Warning" not in result.stderr


# ---- Loops ----


def body(nodes: list[Any], states: int = 1) -> Any:
    names = [f"s{i}" for i in range(states)]
    given = [value("i", INT, []), value("c", BOOL, []), *map(value, names)]
    made = [value("go"), *(value(f"{name}_") for name in names)]
    return onnx.helper.make_graph(nodes, "body", given, made)


def test_long_loops_are_refused_before_they_begin() -> None:
    step = body([make("Identity", "c", "go"), make("Identity", "s0", "s0_")])
    count = {"n": np.int64(10**9)}
    loop = onnx.helper.make_node("Loop", ["n", "", "x"], ["y"], body=step)
    assert "more than 1,000 steps" in refused(model_of([loop], count))


def test_nested_loops_are_unrolled_within_a_limit() -> None:
    inner = body([make("Identity", "c", "go"), make("Sin", "s0", "s0_")])
    nodes = [
        make("Identity", "c", "go"),
        onnx.helper.make_node("Loop", ["n", "", "s0"], ["s0_"], body=inner),
    ]
    outer = onnx.helper.make_node("Loop", ["n", "", "x"], ["y"], body=body(nodes))
    assert "comes to more than" in refused(model_of([outer], {"n": np.int64(900)}))
    assert command(model_of([outer], {"n": np.int64(3)})).exit_code == 0


def test_what_a_scan_takes_is_there() -> None:
    scan = onnx.helper.make_node(
        "Scan", ["x"], ["y"], body=body([]), num_scan_inputs=2**62
    )
    assert "cannot scan" in refused(model_of([scan]))


# ---- Functions ----


def function(name: str, callees: Sequence[str]) -> Any:
    places = ["a", *(f"b{i}" for i in range(len(callees) - 1)), "b"]
    nodes = [
        onnx.helper.make_node(
            callee, [places[i]], [places[i + 1]], domain="own" * (callee[0] == "f")
        )
        for i, callee in enumerate(callees)
    ]
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("own", 1)]
    return onnx.helper.make_function("own", name, ["a"], ["b"], nodes, opsets)


def calling(name: str, *functions: Any) -> Any:
    call = onnx.helper.make_node(name, ["x"], ["y"], domain="own")
    return model_of([call], functions=functions)


def test_functions_come_to_a_limited_number_of_nodes() -> None:
    first = function("f0", ["Relu"])
    doubling = [function(f"f{i}", [f"f{i - 1}"] * 2) for i in range(1, 40)]
    found = refused(calling("f39", first, *doubling))
    assert "the functions of 'model.onnx' come to more than 100," in found
    assert command(calling("f5", first, *doubling)).exit_code == 0


def test_functions_that_call_themselves_are_named() -> None:
    assert "'own.f0' -> 'own.f0'" in refused(calling("f0", function("f0", ["f0"])))
    pair = function("f0", ["f1"]), function("f1", ["f0"])
    assert "'own.f0' -> 'own.f1' -> 'own.f0'" in refused(calling("f0", *pair))


def test_what_onnx_says_of_functions_is_a_message() -> None:
    """It puts them in the place of their calls, as deep as its version does."""
    twice = function("f0", ["Relu"]), function("f0", ["Tanh"])
    assert "not valid" in refused(calling("f0", *twice))
    call = onnx.helper.make_node("f0", ["x", "x"], ["y"], domain="own")
    model = model_of([call], functions=[function("f0", ["Relu"])])
    assert "not valid" in refused(model)


def test_a_definition_that_does_not_fit_is_a_message() -> None:
    """Onnx raises errors of several kinds where it puts one in the place of an operation."""
    mapped = onnx.helper.make_graph(
        [make("Relu", "e", "r")], "body", [value("e")], [value("r")]
    )
    node = onnx.helper.make_node("SequenceMap", ["x"], ["y"], body=mapped)
    assert "SequenceMap" in refused(model_of([node]))


# ---- What is not valid ----


def changed(change: Callable[[Any], Any], *nodes: Any, **data: Any) -> Any:
    model = model_of(nodes or [make("Add", "x w", "y")], data or {"w": [1.0, 2.0, 3.0]})
    change(model)
    return model


def _opset(model: Any, *versions: int) -> None:
    del model.opset_import[:]
    ids = [onnx.helper.make_opsetid("", version) for version in versions]
    model.opset_import.extend([*ids, onnx.helper.make_opsetid("own", 1)])


def _again(field: Any) -> None:
    field.append(field[0])


CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no import": (_opset, "no version of ONNX's operators"),
    "two imports": (
        lambda m: _opset(m, 17, 18),
        "several versions of ONNX's operators",
    ),
    "operator set 0": (lambda m: _opset(m, 0), "no operator set 0"),
    "operator set -1": (lambda m: _opset(m, -1), "no operator set -1"),
    "an input twice": (lambda m: _again(m.graph.input), "several tensors 'x'"),
    "a constant twice": (lambda m: _again(m.graph.initializer), "several tensors 'w'"),
    "a node twice": (lambda m: _again(m.graph.node), "several tensors 'y'"),
    "a negative extent": (
        lambda m: m.graph.initializer[0].dims.__setitem__(0, -1),
        "an extent of 'w' is negative",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_files_that_make_no_sense(name: str) -> None:
    change, message = CHANGES[name]
    assert message in refused(changed(change))


NODES: dict[str, tuple[Callable[[], Any], str]] = {
    "a result that is an input": (
        lambda: make("Relu", "x", "x"),
        "several tensors 'x'",
    ),
    "one operand": (lambda: make("Add", "x", "y"), "input size 1 not in range"),
    "three operands": (lambda: make("Add", "x x x", "y"), "input size 3 not in range"),
    "no operands": (lambda: make("Relu", "", "y"), "input size 0 not in range"),
    "no results": (lambda: make("Relu", "x", ""), "a 'Relu' has no result"),
    "a fraction": (
        lambda: make("Softmax", "x", "y", axis=1.5),
        "'axis' is of a wrong type",
    ),
    "a word": (
        lambda: make("Transpose", "x", "y", perm="ab"),
        "'perm' is of a wrong type",
    ),
    "a number": (
        lambda: make("Einsum", "x", "y", equation=3),
        "'equation' is of a wrong",
    ),
    "no order": (lambda: make("Transpose", "x", "y", perm=[0, 0]), "permutation"),
    "no value": (lambda: make("Constant", "", "y", value=3), "'TENSOR', actual: 'INT'"),
}


@pytest.mark.parametrize("name", NODES)
def test_nodes_that_make_no_sense(name: str) -> None:
    node, message = NODES[name]
    assert message in refused(model_of([node()]))


def test_inner_graphs_have_names_of_their_own() -> None:
    nodes = [make("Tanh", "x", "inner"), make("Relu", "inner", "y")]
    branch = onnx.helper.make_graph(nodes, "branch", [], [value("y")])
    chosen = make("If", "c", "y", then_branch=branch, else_branch=branch)
    assert command(model_of([chosen], {"c": np.array(True)})).exit_code == 0
    branch.node.append(make("Sin", "x", "inner"))
    chosen = make("If", "c", "y", then_branch=branch, else_branch=branch)
    found = refused(model_of([chosen], {"c": np.array(True)}))
    assert "several tensors 'inner'" in found


def test_what_the_checker_accepts_stays_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError("planted")

    monkeypatch.setattr("nnef_grad.frontends.onnx.graph.warnings", fail)
    result = command(model_of([make("Relu", "x", "y")]))
    assert (result.exit_code, "planted" in result.stderr) == (1, True)
    assert "this is a bug in nnef-grad" in result.stderr


@pytest.mark.parametrize(
    "path",
    ["model.onnx", "./model.onnx", "../{0}/model.onnx", "{1}/model.onnx", "link"],
)
def test_a_refusal_names_the_file_as_it_is_called(path: str, here: Path) -> None:
    model = changed(lambda m: _opset(m, 0))
    Path("model.onnx").write_bytes(model.SerializeToString())
    Path("link.onnx").symlink_to("model.onnx")
    given = path.format(here.name, here) if path != "link" else "link.onnx"
    result = CliRunner().invoke(main, [given])
    assert result.exit_code == 2
    assert f"'{given}' is not valid: there is no operator set 0" in result.stderr


def test_numbers_that_no_text_has_are_refused() -> None:
    node = make("LeakyRelu", "x", "y", alpha=float("nan"))
    assert "what is not a number" in refused(model_of([node]))
    far = model_of([make("GatherND", "x n", "y")], {"n": whole(2**40).reshape(1, 1)})
    assert "indices are outside" in refused(far)


def test_names_are_text() -> None:
    data = model_of([make("Relu", "x", "y")]).SerializeToString()
    Path("model.onnx").write_bytes(data.replace(b"x", b"\xff"))
    result = CliRunner().invoke(main, ["model.onnx"])
    assert result.exit_code == 2
    assert "bug" not in result.stderr


# ---- Names in messages ----


def test_names_of_files_do_nothing_in_a_terminal() -> None:
    shown = r"\x1b[31mred\r\nerror: another\u202e\x9b"
    foreign = onnx.helper.make_node("Foo", ["x"], ["y"], domain=EVIL)
    found = refused(model_of([foreign]))
    assert shown in found
    assert found.count("\n") == 1
    number = onnx.helper.make_node("Add", ["x", EVIL], ["y"], name=EVIL)
    result = command(model_of([number], {EVIL: np.float32(3)}), "--stats", "full")
    assert result.exit_code == 0
    assert f"warning: '{shown}' becomes a number" in result.stderr
    for letter in "\x1b\x9b\r\u202e":
        assert letter not in result.stderr + result.stdout
    data = json.loads(refused(model_of([foreign]), "--format", "json"))
    assert EVIL in data["errors"][0]["message"]


def test_errors_of_the_library_have_clean_names() -> None:
    foreign = onnx.helper.make_node("Foo", ["x"], ["y"], domain=EVIL)
    Path("model.onnx").write_bytes(model_of([foreign]).SerializeToString())
    with pytest.raises(UnsupportedError) as caught:
        interop.from_onnx("model.onnx")
    assert "\x1b" not in str(caught.value)


# ---- Numbers of options ----

ODD = ["nan", "inf", "-inf", "-1", "0", "1e400", "1e308", "a word", ""]


@pytest.mark.parametrize("number", ODD)
def test_numbers_of_options_are_finite(number: str) -> None:
    Path("model.nnef").write_text(TEXT)
    words = ["model.nnef", "--check", f"--check-memory={number}"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2, result.stderr
    assert "--check-memory" in result.stderr


@pytest.mark.parametrize("number", ["nan", "inf", "-1", "a word"])
@pytest.mark.parametrize(
    "option", ["learning-rate", "clip-norm", "clip-value", "statistics-momentum"]
)
def test_numbers_of_steps_are_finite(option: str, number: str) -> None:
    Path("model.nnef").write_text(TEXT)
    words = ["model.nnef", "--loss", "hinge", f"--{option}={number}"]
    result = CliRunner().invoke(step_main, words)
    assert result.exit_code == 2
    assert f"--{option}" in result.stderr
