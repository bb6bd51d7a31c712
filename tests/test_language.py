"""Reading and writing: documents to graphs and back, beside the Khronos parser."""

from __future__ import annotations

from pathlib import Path

import nnef
import pytest

import nnef_grad
from nnef_grad.autodiff.rules import derivative_library
from nnef_grad.language.library import FragmentFile, standard
from nnef_grad.language.parser import parse_document, parse_fragments
from nnef_grad.source import Source

MODELS = Path(__file__).parents[2] / "shared" / "models"
OPERATORS = "extension KHR_enable_operator_expressions;\n"
FRAGMENTS = "extension KHR_enable_fragment_definitions;\n"


def graph_of(body: str, header: str = "") -> nnef_grad.Graph:
    text = (
        f"version 1.0;\n{header}\ngraph net( x, w ) -> ( y )\n{{\n"
        f"x = external(shape = [2, 3]);\nw = external(shape = [2, 3]);\n{body}\n}}\n"
    )
    return nnef_grad.loads(text)


def lines(graph: nnef_grad.Graph) -> list[str]:
    """The operations after the externals, as they are written."""
    text = nnef_grad.dumps(graph).split("{\n")[1].split("}")[0]
    return [line.strip() for line in text.splitlines() if "external" not in line]


def round_trip(graph: nnef_grad.Graph) -> None:
    text = nnef_grad.dumps(graph)
    again = nnef_grad.loads(text)
    assert again == graph
    assert nnef_grad.dumps(again) == text


# ---- Documents ----


@pytest.mark.parametrize("name", ["alexnet", "vgg", "resnet"])
def test_real_networks_are_read_as_the_khronos_parser_reads_them(name: str) -> None:
    path = MODELS / f"{name}.nnef"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    graph = nnef_grad.load(path)
    round_trip(graph)
    khronos = nnef.parse_file(str(path))
    nnef.infer_shapes(khronos)
    assert [op.name for op in graph.operations] == [
        op.name for op in khronos.operations
    ]
    shapes = {name: tuple(tensor.shape) for name, tensor in khronos.tensors.items()}
    assert {name: tensor.shape for name, tensor in graph.tensors.items()} == shapes


@pytest.mark.parametrize(
    "statement",
    [
        "y = add(x, w);",
        "y = leaky_relu(x, alpha = 0.1);",
        "y = elu(x);",
        "y = elu(x, alpha = 1e-05);",
        "y = pow(x, -2.0);",
        "y = sum_reduce(x, axes = [0, 1], normalize = true);",
        "y = concat([x, w], axis = 1);",
        "y = pad(x, padding = [(0, 1), (2, 0)], value = -1.5);",
        "y = cast<integer>(x);",
        "y = constant<logical>(shape = [2], value = [true, false]);",
        "y = variable<integer>(shape = [], label = 'n');",
        "y = matmul(x, w, transposeB = true);",
        "y = clamp(x, -1.0, 1.0);",
    ],
)
def test_a_flat_statement_is_written_as_it_is_read(statement: str) -> None:
    graph = graph_of(statement)
    assert lines(graph) == [statement]
    round_trip(graph)


@pytest.mark.parametrize(
    ("statement", "written"),
    [
        ("y = elu(x, alpha = 1.0);", "y = elu(x);"),
        ("y = elu(alpha = 2.0, x = x);", "y = elu(x, alpha = 2.0);"),
        ("(y) = relu(x);", "y = relu(x);"),
        ("y = external<scalar>(shape = [1]);", None),
        ("y = relu<>(x);", None),
        ("y=relu(x)   ;", "y = relu(x);"),
        ("y = relu(x); # done", "y = relu(x);"),
        ("y = leaky_relu(x, alpha = 1E-5);", "y = leaky_relu(x, alpha = 1e-05);"),
        ("y = leaky_relu(x, alpha = 007.50);", "y = leaky_relu(x, alpha = 7.5);"),
        ("y = leaky_relu(x, alpha = - 1.0);", "y = leaky_relu(x, alpha = -1.0);"),
        ("y = exp(neg(x));", "y_neg = neg(x);\ny = exp(y_neg);"),
    ],
)
def test_canonical_form(statement: str, written: str | None) -> None:
    if written is None:
        with pytest.raises(nnef_grad.NnefGradError):
            graph_of(statement)
        return
    assert "\n".join(lines(graph_of(statement))) == written


# ---- Expressions ----


@pytest.mark.parametrize(
    ("expression", "written"),
    [
        ("x + w", ["y = add(x, w);"]),
        ("x - w - x", ["y_sub = sub(x, w);", "y = sub(y_sub, x);"]),
        ("x + w * x", ["y_mul = mul(w, x);", "y = add(x, y_mul);"]),
        ("(x + w) * x", ["y_add = add(x, w);", "y = mul(y_add, x);"]),
        ("-x ^ 2.0", ["y_pow = pow(x, 2.0);", "y = neg(y_pow);"]),
        ("x ^ -2.0", ["y = pow(x, -2.0);"]),
        ("x ^ 2.0 ^ 3.0", ["y_pow = pow(x, 2.0);", "y = pow(y_pow, 3.0);"]),
        ("x * (2.0 + 3.0 * 2.0)", ["y = mul(x, 8.0);"]),
        ("x * scalar(7 / 2)", ["y = mul(x, 3.0);"]),
        ("x * scalar(-7 / 2)", ["y = mul(x, -3.0);"]),
        ("x * 2.0 ^ 3.0", ["y = mul(x, 8.0);"]),
        ("x * (1.0 if 1 < 2 && !false else 0.0)", ["y = mul(x, 1.0);"]),
        ("x * (1.0 if (3 in [1, 2]) || 1 == 2 else 0.5)", ["y = mul(x, 0.5);"]),
        ("x * scalar(length_of([1, 2, 3]))", ["y = mul(x, 3.0);"]),
        ("x * scalar(length_of('abc' + 'd' * 2))", ["y = mul(x, 5.0);"]),
        ("reshape(x, shape = [1] * 2 + [6])", ["y = reshape(x, shape = [1, 1, 6]);"]),
        ("reshape(x, shape = [for i in [2, 3], j in [3, 2] yield i * j / 6] + [-1])",
         ["y = reshape(x, shape = [1, 1, -1]);"]),
        ("sum_reduce(x, axes = [for i in range_of([5, 6, 7]) if i < 2 yield i])",
         ["y = sum_reduce(x, axes = [0, 1]);"]),
        ("sum_reduce(x, axes = [3, 1, 0][1:])", ["y = sum_reduce(x, axes = [1, 0]);"]),
        ("add_n([x, w] + [x])", ["y = add_n([x, w, x]);"]),
        ("select(x < w, x, w)", ["y_lt = lt(x, w);", "y = select(y_lt, x, w);"]),
        ("select(!(x < w), x, w)",
         ["y_not_lt = lt(x, w);", "y_not = not(y_not_lt);", "y = select(y_not, x, w);"]),
    ],
)  # fmt: skip
def test_an_expression(expression: str, written: list[str]) -> None:
    graph = graph_of(f"y = {expression};", OPERATORS)
    assert lines(graph) == written
    round_trip(graph)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("x * (1 + 2.0)", "'+' does not apply to integer and scalar"),
        ("x * scalar(1 / 0)", "'/' has no value here"),
        ("x * [1.0][1]", "index 1 is out of range: there are 1 items"),
        ("x * (1.0 if 2 else 0.0)", "this must be logical, and is integer"),
        ("x * scalar('a')", "'a' is not the text of a scalar"),
        ("x * scalar(shape_of(x)[0])", "shape_of is deprecated"),
        ("[for i in [1], j in [1, 2] yield x][0]", "the arrays that are iterated together differ in length"),
        ("x * (0.0 - 1.0) ^ 0.5", "'^' has no value here"),
    ],
)  # fmt: skip
def test_an_expression_without_value(expression: str, message: str) -> None:
    with pytest.raises(nnef_grad.NnefGradError) as caught:
        graph_of(f"y = {expression};", OPERATORS)
    assert caught.value.message.startswith(message)
    assert caught.value.span is not None


def test_a_name_for_a_name_is_a_copy() -> None:
    assert lines(graph_of("z = relu(x);\ny = z;", OPERATORS)) == [
        "z = relu(x);",
        "y = copy(z);",
    ]


# ---- Fragments ----


def test_a_fragment_is_inlined_and_its_tensors_are_named_after_the_result() -> None:
    graph = nnef_grad.loads(f"""version 1.0;
        {FRAGMENTS} {OPERATORS}
        fragment scaled( x: tensor<scalar>, by: scalar = 2.0 ) -> ( y: tensor<scalar> )
        {{
            half = x * (by / 2.0);
            y = half + half;
        }}
        fragment pair( x: tensor<scalar> ) -> ( a: tensor<scalar>, b: tensor<scalar> )
        {{
            a = scaled(x, by = 6.0);
            b = scaled(a);
        }}
        graph net( x ) -> ( y, z )
        {{
            x = external(shape = [2]);
            y, z = pair(x);
        }}
        """)  # fmt: skip
    assert lines(graph) == [
        "y_a_half = mul(x, 3.0);",
        "y = add(y_a_half, y_a_half);",
        "y_b_half = mul(y, 1.0);",
        "z = add(y_b_half, y_b_half);",
    ]
    round_trip(graph)


def test_a_generic_fragment_hands_its_type_on() -> None:
    graph = nnef_grad.loads(f"""version 1.0;
        {FRAGMENTS}
        fragment zeros<? = scalar>( shape: integer[], value: ?[] ) -> ( y: tensor<?> )
        {{
            y = constant<?>(shape = shape, value = value);
        }}
        graph net( x ) -> ( y )
        {{
            x = external(shape = [2]);
            y = zeros<integer>(shape = [2], value = [0]);
        }}
        """)
    assert lines(graph) == ["y = constant<integer>(shape = [2], value = [0]);"]


def test_the_users_names_are_never_changed() -> None:
    graph = graph_of("y_mul = exp(x);\nz = x * w + y_mul;\ny = relu(x * w);", OPERATORS)
    assert lines(graph) == [
        "y_mul = exp(x);",
        "z_mul = mul(x, w);",
        "z = add(z_mul, y_mul);",
        "y_mul_1 = mul(x, w);",
        "y = relu(y_mul_1);",
    ]


# ---- The standard library ----


def test_all_standard_operations_are_declared_as_in_the_khronos_parser() -> None:
    library = standard()
    assert len(library) == 119
    text = standard().path.read_text("utf-8")
    source = "version 1.0;\ngraph net( x ) -> ( y ) { x = external(shape = [1]); y = relu(x); }"
    assert nnef.parse_string(source, stdlib=text).name == "net"


@pytest.mark.parametrize("path", [standard().path, derivative_library().path])
def test_definitions_read_one_by_one_are_those_of_the_whole_file(path: Path) -> None:
    whole = parse_fragments(Source(path.name, path.read_text("utf-8")))
    lazy = FragmentFile(path)
    assert [f.name for f in whole] == list(lazy)
    assert all(lazy[f.name] == f for f in whole)
    assert all(lazy[f.name].span.line == f.span.line for f in whole)


def test_places_are_those_of_the_text() -> None:
    text = "version 1.0;\n\ngraph net( x ) -> ( y )\n{\n  x = external(shape = [1]);\n\ty = relu(x);\n}\n"
    statement = parse_document(Source("t", text)).graph.body[1]
    assert (statement.value.span.line, statement.value.span.column) == (6, 6)
    assert statement.value.span.text == "relu"
