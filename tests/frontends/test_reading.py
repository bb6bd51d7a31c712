"""The language of tract's dialect: how it is recognised, symbols, metadata, messages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from support.dialect_models import write_model

import nnef_grad
from nnef_grad.base.errors import NnefGradError, UsageError
from nnef_grad.commandline.cli import OPTIONS, main
from nnef_grad.frontends import DIALECTS
from nnef_grad.frontends.tract import operations as _operations  # noqa: F401
from nnef_grad.frontends.tract.evaluation import EXPANSIONS
from nnef_grad.frontends.tract.library import IDIOM_FILE, IDIOMS

HEAD = "version 1.0;\nextension tract_registry tract_core;\n"


def document(
    statements: str, *, head: str = HEAD, inputs: str = "x", more: str = ""
) -> str:
    lines = "".join(
        f"    {name} = tract_core_external(shape = [2, 3], datum_type = 'f32');\n"
        for name in inputs.split(", ")
    )
    graph = f"graph net({inputs}) -> (y)\n{{\n{lines}    {statements}\n}}\n"
    return f"{head}{more}{graph}"


def error_of(text: str, **options: object) -> NnefGradError:
    with pytest.raises(NnefGradError) as caught:
        nnef_grad.loads(text, **options)  # type: ignore[arg-type]
    return caught.value


def place_of(error: NnefGradError) -> str:
    """What the caret is under."""
    assert error.span is not None
    return error.span.text


# ---- Which dialect ----


def test_a_document_is_of_the_dialect_that_it_names() -> None:
    graph = nnef_grad.loads(document("y = leaky_relu(x, 0.1);"))
    assert graph.operations[-1].name == "leaky_relu"


def test_strict_reading_of_the_same_document() -> None:
    error = error_of(document("y = relu(x);"), dialect="nnef")
    assert "extension 'tract_registry' is not supported" in str(error)
    assert place_of(error) == "tract_registry"


def test_a_document_without_the_line_is_strict_unless_it_is_told() -> None:
    text = document("y = tract_core_erf(x);", head="version 1.0;\n")
    assert "no operation 'tract_core_external'" in str(error_of(text))
    assert nnef_grad.loads(text, dialect="tract").outputs[0].shape == (2, 3)


@pytest.mark.parametrize(
    "head",
    [
        "version 1.0;\n# extension tract_registry tract_core;\n",
        "version 1.0; # a; extension tract_registry tract_core;\n",
    ],
)
def test_a_line_in_a_comment_names_no_dialect(head: str) -> None:
    error = error_of(document("y = relu(x);", head=head))
    assert "no operation 'tract_core_external'" in str(error)


def test_a_document_in_one_line() -> None:
    text = document("y = relu(x);").replace("\n", " ")
    assert nnef_grad.loads(text).output_names == ("y",)


def test_there_is_no_such_dialect() -> None:
    with pytest.raises(UsageError, match="did you mean 'tract'"):
        nnef_grad.loads(document("y = relu(x);"), dialect="trac")


def test_the_options_name_the_dialects() -> None:
    (option,) = (o for group in OPTIONS.values() for o in group if o.name == "dialect")
    assert tuple(option.type.choices) == DIALECTS  # type: ignore[attr-defined]


# ---- Metadata ----

PROPERTIES = """fragment tract_core_properties() -> (properties: (string, tensor<scalar>)[])
{
  properties = [("torch_version", "2.13.0"), ("scale", 2.0)];
}
"""


def test_metadata_are_comments() -> None:
    head = f"{HEAD}extension tract_assert B >= 1;\n"
    graph = nnef_grad.loads(document("y = relu(x);", head=head, more=PROPERTIES))
    assert graph.notes == (
        "tract_assert B >= 1",
        "tract_core_properties: torch_version = 2.13.0",
        "tract_core_properties: scale = 2.0",
    )
    assert "# tract_core_properties: scale = 2.0" in nnef_grad.dumps(graph)
    assert "extension tract_assert" not in nnef_grad.dumps(graph)


def test_what_is_ignored_is_a_warning() -> None:
    head = f"{HEAD}extension vendor_thing;\n"
    graph = nnef_grad.loads(document("y = sigmoid(x, axes = [1]);", head=head))
    assert [w.message for w in graph.warnings] == [
        "extension 'vendor_thing' is ignored",
        "'sigmoid' has no parameter 'axes': it is ignored",
    ]
    assert graph.warnings[1].span is not None
    assert graph.warnings[1].span.line == 7


@pytest.mark.parametrize("rows", [[], [2], [1, 2]])
def test_a_row_of_zeros_may_be_padding(rows: list[int], tmp_path: Path) -> None:
    """An export does not say which row of an embedding has no gradient."""
    text = (
        f"{HEAD}\ngraph g( i ) -> ( y )\n{{\n"
        "    i = external<integer>(shape = [4]);\n"
        "    w = variable(shape = [5, 3], label = 'words');\n"
        "    y = tract_core_gather(w, i, axis = 0);\n}\n"
    )
    table = np.ones((5, 3), np.float32)
    table[rows] = 0.0
    nnef_grad.save(nnef_grad.loads(text), tmp_path / "m", data={"words": table})
    (tmp_path / "m" / "graph.nnef").write_text(text)
    found = [w.message for w in nnef_grad.load(tmp_path / "m").warnings]
    assert [m for m in found if "padding_idx" in m] == (
        ["row 2 of the table has only zeros: if it is a padding_idx, it has no gradient in"
         " PyTorch, but has one here, unless the training step is told"]
        if rows == [2]
        else []
    )  # fmt: skip


# ---- Symbols ----

DYNAMIC = document("y = reshape(x, shape = [B * 3, -1]);").replace("[2, 3]", "[B, 6]")
DYNAMIC = DYNAMIC.replace(HEAD, f"{HEAD}extension tract_symbol B;\n")


@pytest.mark.parametrize(
    "options", [{"symbols": {"B": 4}}, {"batch": 4}, {"input_shapes": {"x": (4, 6)}}]
)
def test_a_symbol_gets_a_number(options: dict[str, object]) -> None:
    graph = nnef_grad.loads(DYNAMIC, **options)  # type: ignore[arg-type]
    assert graph.inputs[0].shape == (4, 6)
    assert graph.outputs[0].shape == (12, 2)


def test_a_symbol_without_a_number() -> None:
    graph = nnef_grad.loads(DYNAMIC)
    assert [str(t.shape) for t in (*graph.inputs, *graph.outputs)] == [
        "(B, 6)",
        "(3*B, 2)",
    ]


def test_numbers_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "model.nnef"
    path.write_text(DYNAMIC)
    result = CliRunner().invoke(main, [str(path), "--symbol", "B=4", "-q"])
    assert result.exit_code == 0
    assert "shape = [4, 6]" in result.stdout
    for wrong in ("B", "B=x", "B=0", "=3"):
        result = CliRunner().invoke(main, [str(path), "--symbol", wrong])
        assert result.exit_code == 2, wrong


def test_a_symbol_has_one_number() -> None:
    error = error_of(DYNAMIC, symbols={"B": 4}, batch=5)
    assert "'B' is 4, but extent 0 of 'x' is 5" in error.message


def test_there_is_no_such_symbol() -> None:
    assert "no symbol 'b'" in error_of(DYNAMIC, symbols={"b": 4}).message
    undeclared = DYNAMIC.replace("extension tract_symbol B;\n", "")
    assert nnef_grad.loads(undeclared, batch=4).inputs[0].shape == (4, 6)
    assert str(nnef_grad.loads(undeclared).outputs[0].shape) == "(3*B, 2)"
    strict = (
        "version 1.0; graph g(x) -> (y) { x = external(shape = [1]); y = relu(x); }"
    )
    assert "no symbols" in error_of(strict, symbols={"B": 1}).message


# ---- Mistakes ----


@pytest.mark.parametrize(
    ("statements", "message", "place"),
    [
        ("y = rleu(x);", "no operation 'rleu'; did you mean 'relu'?", "rleu"),
        ("y = relu(z);", "'z' is not defined", "z"),
        ("y = relu();", "'relu' needs 'x'", "relu"),
        ("y = relu(x, 1, 2);", "too many arguments: 'relu' has 1 parameter", "1"),
        ("y = relu(x, x = x);", "argument 'x' of 'relu' is given twice", "x"),
        ("y = softmax(x, 5);", "softmax: 'axes' must be in 0..1", "softmax"),
        ("y = reshape(x, shape = ['a']);", "must be integer[], not ['a']", "['a']"),
        ("y = reshape(x, shape = [x]);", "not known when the document is read", "[x]"),
        ("y = relu('a');", "argument 'x' of 'relu' must be tensor<scalar>, not 'a'", "'a'"),
        ("y = tract_core_bitand(x, x);", "bits of integers are not in NNEF", "tract_core_bitand"),
        ("y = tract_core_cast(x, to = 'c64');", "there is no data type 'c64'", "tract_core_cast"),
        ("y = tract_core_scan(body = 'b', scan = [('a', x, 0, 1)], full = [], state = [], output = [('c', 'full', 0, 1)]);", "the document has no fragment 'b'", "tract_core_scan"),
        ("y = tract_core_einsum([x, x], expr = 'ij,jk->ik');", "'j' is 3 and 2", "tract_core_einsum"),
        ("y = variable(label = '../x', shape = [2]);", "leads out of the folder", "variable"),
        ("z = relu(x);", "output 'y' of the graph is not assigned", "y"),
        ("y = tract_core_topk(x, 2000, axis = 1, largest = true);", "axis 1 has 3 elements, and not 2000", "tract_core_topk"),
        ("y = tract_core_resize(x, [1.5]);", "there must be 2 scales or extents", "tract_core_resize"),
        ("y = tract_core_resize(x, [1.5, 1.0], coord_transformer = 'pixel');", "there is no 'pixel': it is one of align_corners, asymmetric,", "tract_core_resize"),
        ("y = tract_core_resize(x, [1.3, 1.0], coord_transformer = 'align_corners');", "corners are aligned by extents, or by exact scales", "tract_core_resize"),
        ("y = tract_core_resize(x, [0.1, 1.0]);", "the result must have elements", "tract_core_resize"),
        ("y = tract_core_grid_sample(x, x);", "a grid of shape [2, 3] must be [2, 0]", "tract_core_grid_sample"),
        ("y = tract_core_grid_sample(x, x, mode = 'cubic');", "mode must be one of bilinear, nearest, bicubic", "tract_core_grid_sample"),
        ("y = tract_core_grid_sample(x, x, mode = 'bicubic', padding_mode = 'border');", "must have zeros around the image", "tract_core_grid_sample"),
        ("y = tract_core_gather_elements(x, [0, 1], axis = 1);", "the operand has rank 2, and the indices have rank 1", "tract_core_gather_elements"),
        ("y = tract_core_scatter_nd(x, [[1], [-1]], x, reduction = 'none');", "indices must differ", "tract_core_scatter_nd"),
        ("y = tract_core_scatter_elements(x, [[1, 1], [0, 1]], slice(x, axes = [1], begin = [0], end = [2]), axis = 1);", "indices must differ", "tract_core_scatter_elements"),
        ("y = tract_core_scatter_elements(x, [[0], [0], [0]], x, axis = 1);", "indices of shape [3, 1] are not in [2, 3]", "tract_core_scatter_elements"),
        ("y = tract_core_scatter_elements(x, [[0], [1]], x, axis = 1, reduction = 'add');", "there must be an update for each index", "tract_core_scatter_elements"),
        ("[y] = relu(x);", "expect several results, but this is a tensor of shape [2, 3]", "[y]"),
        ("y = [1, 2] * 0.5;", "this has no value: TypeError: can't multiply", "[1, 2] * 0.5"),
        ("n = relu(z); y = relu(n);", "'z' is not defined", "z"),
    ],
)  # fmt: skip
def test_a_mistake(statements: str, message: str, place: str) -> None:
    error = error_of(document(statements))
    (problem,) = error.problems
    assert message in problem.message
    assert place_of(error) == place


def test_all_mistakes_are_reported_at_once() -> None:
    error = error_of(document("y = rleu(x); z = relu(w); v = relu(y);"))
    assert [p.message for p in error.problems] == [
        "there is no operation 'rleu'; did you mean 'relu'?",
        "'w' is not defined",
    ]


def test_a_mistake_in_a_fragment_shows_its_caller() -> None:
    more = "fragment twice(x: tensor<scalar>) -> (y: tensor<scalar>) { y = rleu(x); }\n"
    error = error_of(document("y = twice(x);", more=more))
    assert place_of(error) == "rleu"
    assert error.span is not None
    assert [caller.text for caller in error.span.callers] == ["twice"]


def test_fragments_in_a_circle() -> None:
    more = "fragment f(x: tensor<scalar>) -> (y: tensor<scalar>) { y = f(x); }\n"
    assert "more than 50 deep" in str(error_of(document("y = f(x);", more=more)))


def test_a_long_loop_stays_one() -> None:
    more = "fragment b(a: tensor<scalar>) -> (c: tensor<scalar>) { c = exp(a); }\n"
    statement = "y = tract_core_scan(body = 'b', scan = [('a', x, 0, 1)], full = [], state = [], output = [('c', 'full', 0, 1)]);"
    text = document(statement, more=more).replace("[2, 3]", "[1001, 3]")
    graph = nnef_grad.loads(text)
    assert graph.operations[-1].name == "<loop>"
    unrolled = nnef_grad.loads(text, unroll=1001)
    assert "tract_core_scan" not in nnef_grad.dumps(unrolled)
    for target, name in (("nnef", "the standard"), ("khronos", "the Khronos runtimes")):
        with pytest.raises(nnef_grad.UnsupportedError) as caught:
            nnef_grad.lower(graph, target)
        what = "cannot run '<loop>' of more than 1,000 steps"
        assert f"{name} {what}" in str(caught.value)


def test_a_syntax_error_has_its_place() -> None:
    error = error_of(document("y = relu(x;"))
    assert error.span is not None
    assert (error.span.line, error.span.column) == (6, 15)


# ---- Data ----


def test_a_number_in_data_is_no_variable(tmp_path: Path) -> None:
    statements = "e = variable<scalar>(label = 'e', shape = []);\n    y = tract_core_rms_norm(x, axis = 1, eps = e);"
    folder = write_model(
        tmp_path / "model", document(statements), {"e": np.array(1e-5)}
    )
    graph = nnef_grad.load(folder)
    assert graph.variables == ()
    assert "1e-05" in nnef_grad.dumps(graph)
    error = error_of(document(statements))
    assert "read the folder or the archive with its data" in error.message
    assert place_of(error) == "e"


def test_numbers_in_data_are_no_variable(tmp_path: Path) -> None:
    statements = "s = variable<scalar>(label = 's', shape = [2]);\n    y = tract_core_resize(x, scales = s, interpolator = 'linear');"
    data = {"s": np.array([1.5, 1.0], np.float32)}
    folder = write_model(tmp_path / "model", document(statements), data)
    graph = nnef_grad.load(folder)
    assert graph.variables == ()
    assert graph.outputs[0].shape == (3, 3)
    error = error_of(document(statements))
    assert "read the folder or the archive with its data" in error.message
    assert place_of(error) == "s"
    (folder / "s.dat").unlink()
    with pytest.raises(NnefGradError, match="document: there is none"):
        nnef_grad.load(folder)


def test_a_number_of_python_is_no_variable(tmp_path: Path) -> None:
    statements = "c = variable<scalar>(label = 'c', shape = []);\n    y = mul(x, unsqueeze(tract_core_cast(c, to = 'f32'), axes = [0, 1]));"
    data = {"c": np.array(0.3)}
    folder = write_model(tmp_path / "model", document(statements), data)
    graph = nnef_grad.load(folder)
    assert graph.variables == ()
    made = nnef_grad.evaluate(graph, {"x": np.ones((2, 3))})
    np.testing.assert_allclose(made["y"], np.full((2, 3), 0.3))


def test_axes_that_are_counted_from_the_end() -> None:
    graph = nnef_grad.loads(document("y = sum_reduce(relu(x), axes = [-1]);"))
    assert graph.operations[-1].attributes["axes"] == (1,)
    error = error_of(document("y = sum_reduce(x, axes = [-3]);"))
    assert "'axes' must be in 0..1 for rank 2, but are [-3]" in error.message


def test_infinite_data_that_are_cast_to_integers(tmp_path: Path) -> None:
    statements = (
        "v = variable<scalar>(label = 'v', shape = [2, 3]);\n    i = tract_core_cast(v, to = 'i64');\n"
        "    near = lt(i, 0);\n    y = mul(x, tract_core_cast(select(near, 2, i), to = 'f32'));"
    )
    data = {"v": np.array([[-np.inf, 1, 2], [3, 4, 5]], np.float32)}
    folder = write_model(tmp_path / "model", document(statements), data)
    made = nnef_grad.evaluate(nnef_grad.load(folder), {"x": np.ones((2, 3))})
    np.testing.assert_array_equal(made["y"], [[2, 1, 2], [3, 4, 5]])


def test_a_number_that_is_an_operand_stays_a_variable(tmp_path: Path) -> None:
    statements = "e = variable<scalar>(label = 'e', shape = []);\n    y = mul(leaky_relu(x, e), e);"
    data = {"e": np.array(0.25, np.float32)}
    folder = write_model(tmp_path / "model", document(statements), data)
    assert [*nnef_grad.load(folder).labels] == ["e"]


def test_large_tables_stay_variables(tmp_path: Path) -> None:
    statements = "i = variable<scalar>(label = 'i', shape = [20000]);\n    y = tract_core_gather(x, i, axis = 0);"
    data = {"i": np.zeros(20000, np.int64)}
    folder = write_model(tmp_path / "model", document(statements), data)
    graph = nnef_grad.load(folder)
    assert [(graph.names[v], v.dtype) for v in graph.variables] == [("i", "integer")]


def test_the_last_value_has_the_name() -> None:
    graph = nnef_grad.loads(document("y = relu(x); y = neg(y);"))
    assert graph.output_names == ("y",)
    assert [op.name for op in graph.operations] == ["external", "relu", "neg"]


def test_an_output_that_is_another_tensor_is_a_copy() -> None:
    graph = nnef_grad.loads(document("y = tract_core_cast(x, to = 'f32');"))
    assert [op.name for op in graph.operations] == ["external", "copy"]


def test_rules_of_the_user_apply() -> None:
    rules = nnef_grad.loads_rules(
        "fragment gate( x: tensor<scalar> ) -> ( y: tensor<scalar> );\n"
        "fragment gate_shape( x: tensor<scalar> ) -> ( y: tensor<scalar> ) { y = x; }\n"
        "fragment gate_vjp( x: tensor<scalar>, y: tensor<scalar>, dy: tensor<scalar> ) -> ( dx: tensor<scalar> ) { dx = 2.0 * dy; }\n"
    )
    graph = nnef_grad.loads(document("y = gate(x);"), rules=rules)
    assert graph.operations[-1].name == "gate"
    nnef_grad.differentiate(graph, rules=rules)


def test_compound_operations_are_kept_unless_they_are_expanded() -> None:
    text = document("y = softmax(x, 1);")
    assert len(nnef_grad.loads(text).operations) == 2
    assert len(nnef_grad.loads(text, expand=["softmax"]).operations) > 4


def test_inputs_of_the_standard_have_symbols_too() -> None:
    text = document("y = relu(x);").replace(
        "tract_core_external(shape = [2, 3], datum_type = 'f32')",
        "external<integer>(shape = [N, 3])",
    )
    (x,) = nnef_grad.loads(text, batch=5).inputs
    assert (x.dtype, x.shape) == ("integer", (5, 3))


def test_a_linear_layer_of_rank_3_is_one_product() -> None:
    statements = (
        "w = variable<scalar>(label = 'w', shape = [1, 5, 3]);\n    y = linear(x, w);"
    )
    text = document(statements).replace("[2, 3]", "[2, 4, 3]")
    graph = nnef_grad.loads(text)
    (product,) = (op for op in graph.operations if op.name == "linear")
    assert [t.shape for t in product.inputs] == [(8, 3), (5, 3)]


# ---- Idioms ----


@pytest.mark.parametrize("name", sorted({*IDIOM_FILE} - {*EXPANSIONS}))
def test_a_fragment_that_is_an_operation_of_the_standard(name: str) -> None:
    fragment = IDIOM_FILE[name].span.source.text
    text = document(f"y = {name}(x);", more=fragment)
    graph = nnef_grad.loads(text)
    standard = IDIOMS.get(name, name)
    assert [op.name for op in graph.operations] == ["external", standard]
    body = nnef_grad.loads(text, expand=[standard])
    values = {"x": np.linspace(-3.0, 3.0, 6).reshape(2, 3)}
    ours, theirs = (nnef_grad.evaluate(g, values)["y"] for g in (graph, body))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_a_fragment_that_is_almost_one() -> None:
    fragment = IDIOM_FILE["silu"].span.source.text.replace("sigmoid(", "tanh(")
    graph = nnef_grad.loads(document("y = silu(x);", more=fragment))
    assert [op.name for op in graph.operations] == ["external", "tanh", "mul"]


def test_integers_in_the_place_of_scalars() -> None:
    graph = nnef_grad.loads(document("y = add(mul(x, 2), leaky_relu(x, 1));"))
    operands = [op.operands for op in graph.operations if op.name == "mul"]
    assert operands == [(graph.inputs[0], 2.0)]
    assert type(operands[0][1]) is float


# ---- What reads models ----


@pytest.mark.parametrize(
    ("value", "halves"),
    [
        ("clamp(i, 0, 5)", [0, 2, 1, 2, 0, 2]),
        ("relu(i)", [0, 3, 1, 3, 0, 2]),
        ("mean_reduce(i, axes = [1])", [1, 1]),
    ],
)
def test_what_tract_computes_of_integers_is_whole(
    value: str, halves: list[int]
) -> None:
    statements = (
        "i = tract_core_cast(x, to = 'i64');\n"
        f"    y = tract_core_cast({value} / 2, to = 'f32');"
    )
    x = np.array([[1, 7, 3], [6, -3, 5]])
    y = nnef_grad.evaluate(nnef_grad.loads(document(statements)), {"x": x})["y"]
    np.testing.assert_array_equal(y.ravel(), halves)


def test_a_module_of_torch_reads_the_dialect(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from nnef_grad.torch import Module

    statements = (
        "w = variable<scalar>(label = 'w', shape = [4, 3]);\n"
        "    e = variable<scalar>(label = 'e', shape = []);\n"
        "    y = tract_core_rms_norm(linear(x, w, 0.0), axis = 1, eps = e);"
    )
    weight = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(4, 3)
    data = {"w": weight, "e": np.array(0.5)}
    folder = write_model(tmp_path / "model", document(statements), data)
    x = torch.linspace(-1.0, 2.0, 6).reshape(2, 3)
    made = Module(folder)(x)
    product = x @ torch.tensor(weight).T
    expected = product / torch.sqrt((product**2).mean(1, keepdim=True) + 0.5)
    torch.testing.assert_close(made, expected)


def test_a_training_step_of_an_export(tmp_path: Path) -> None:
    statements = (
        "w = variable<scalar>(label = 'w', shape = [4, 3]);\n    y = linear(x, w, 0.0);"
    )
    data = {"w": np.ones((4, 3), np.float32)}
    folder = write_model(tmp_path / "model", document(statements), data)
    graph = nnef_grad.load(folder)
    step = nnef_grad.training_step(graph, loss="mean_squared_error", optimizer="sgd")
    assert "linear" in nnef_grad.dumps(step.graph)


def test_places_are_refused_that_single_precision_cannot_count() -> None:
    text = document(
        "table = variable<scalar>(label = 't', shape = [4097, 4097]);"
        " places = tract_core_cast(tract_core_topk(x, k = 2, axis = 1)[1], to = 'i64');"
        " y = tract_core_gather_nd(table, places);"
    )
    assert error_of(text).message == (
        "tract_core_gather_nd: integers are computed in single precision,"
        " which has no 16785408 exactly"
    )


def test_numbers_in_brackets_are_a_tensor_where_tract_wrote_them(
    tmp_path: Path,
) -> None:
    """The message says so, with the whole command."""
    path = tmp_path / "scaled.nnef"
    path.write_text(
        "version 1.0;\ngraph net(x) -> (y) { x = external(shape = [2, 3]);"
        " a = [[1.0], [2.0]]; y = mul(x, a); }"
    )
    with pytest.raises(nnef_grad.NnefGradError, match="read it with dialect='tract'"):
        nnef_grad.load(path)
    assert nnef_grad.load(path, dialect="tract").outputs[0].shape == (2, 3)
    result = CliRunner().invoke(main, [str(path), "-o", str(tmp_path / "b.nnef")])
    assert f"{path} -o {tmp_path / 'b.nnef'} --dialect tract" in result.stderr


def test_what_tract_wrote_may_say_so_in_a_fragment_alone() -> None:
    text = """version 1.0;
    fragment tract_core_properties() -> (properties: (string, tensor<scalar>)[]) {
        properties = [("tract_nnef_ser_version", "0.16.10-pre")];
    }
    graph net(x) -> (y) { x = external(shape = [2, 3]); y = tanh(x); }"""
    assert nnef_grad.loads(text).outputs[0].shape == (2, 3)
