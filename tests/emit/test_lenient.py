"""What exporters are known to get wrong: an error by default, repaired on request."""

from __future__ import annotations

import nnef
import pytest
from click.testing import CliRunner

import nnef_grad
from nnef_grad.commandline.cli import main


def document(statement: str) -> str:
    return (
        "version 1.0;\ngraph net( x ) -> ( y )\n{\n"
        "    x = external(shape = [1, 3, 8]);\n"
        "    w = variable(shape = [4, 3, 3], label = 'w');\n"
        "    b = variable(shape = [4], label = 'b');\n"
        f"    {statement}\n}}\n"
    )


REPAIRS = [
    ("y = sum_reduce(x, [0]);", "y = sum_reduce(x, axes = [0]);", ["read as axes = [0]"]),
    ("y = leaky_relu(x, 0.1);", "y = leaky_relu(x, alpha = 0.1);", ["read as alpha = 0.1"]),
    ("y = sum_reduce(x, axes = 0);", "y = sum_reduce(x, axes = [0]);", ["read as [0]"]),
    ("y = add(x, 2);", "y = add(x, 2.0);", ["read as 2.0"]),
    ("y = elu(x, alpha = 1);", "y = elu(x);", ["read as 1.0"]),
    ("y = constant(shape = [2], value = [1, 2]);", "y = constant(shape = [2], value = [1.0, 2.0]);", ["read as 1.0", "read as 2.0"]),
    ("y = constant(shape = 2, value = 1);", "y = constant(shape = [2], value = [1.0]);", ["read as [2]", "read as [1]", "read as 1.0"]),
    ("y = leaky_relu(x, 2);", "y = leaky_relu(x, alpha = 2.0);", ["read as alpha = 2", "read as 2.0"]),
    ("y = relu(add(x, -1));", "y_add = add(x, -1.0);\n    y = relu(y_add);", ["read as -1.0"]),
    ("y = conv(x, w, b);", "b_row = unsqueeze(b, axes = [0]);\n    y = conv(x, w, b_row);", ["the bias of shape [4] is read as [1, 4]"]),
    ("p = variable(shape = [3, 1, 1], label = 'p'); q = variable(shape = [4, 3, 1], label = 'q'); y = separable_conv(x, p, q, b);",
     "b_row = unsqueeze(b, axes = [0]);\n    y = separable_conv(x, p, q, b_row);", ["the bias of shape [4] is read as [1, 4]"]),
    ("y = pad(x, padding = [[0, 0], [1, 1], [2, 0]]);", "y = pad(x, padding = [(0, 0), (1, 1), (2, 0)]);",
     ["read as (0, 0)", "read as (1, 1)", "read as (2, 0)"]),

    ("y = transpose(x);", "y = transpose(x, axes = [2, 1, 0]);", ["read as axes = [2, 1, 0]"]),
    ("y = relu(transpose(w));", "y_transpose = transpose(w, axes = [2, 1, 0]);\n    y = relu(y_transpose);", ["read as axes = [2, 1, 0]"]),
    ("s = variable(shape = [1, 1, 3], label = 's'); y = prelu(x, s);",
     "s_row = squeeze(s, axes = [0]);\n    y = prelu(x, s_row);", ["the slopes of shape [1, 1, 3] are read as [1, 3]"]),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "written", "warnings"), REPAIRS)
def test_a_repair(statement: str, written: str, warnings: list[str]) -> None:
    text = document(statement)
    with pytest.raises(nnef_grad.NnefGradError) as error:
        nnef_grad.loads(text)
    assert error.value.problems[0].remedy == "lenient"
    told = CliRunner().invoke(main, ["-", "-q"], input=text).stderr
    assert ", or read it with --lenient" in told
    assert told.endswith("with all repairs: main - -q --lenient\n")
    graph = nnef_grad.loads(text, lenient=True)
    assert [problem.message for problem in graph.warnings] == warnings
    assert all(problem.span is not None for problem in graph.warnings)
    repaired = nnef_grad.dumps(graph)
    assert f"    {written}\n" in repaired
    nnef.infer_shapes(nnef.parse_string(repaired))


def test_what_needs_no_repair_gets_none() -> None:
    graph = nnef_grad.loads(document("y = add(x, 2.0);"), lenient=True)
    assert graph.warnings == ()


@pytest.mark.parametrize(
    "statement", ["y = add(x, 'a');", "y = relu(x, 1, 2);", "y = f(x);"]
)
def test_what_cannot_be_repaired_is_an_error(statement: str) -> None:
    with pytest.raises(nnef_grad.NnefGradError):
        nnef_grad.loads(document(statement), lenient=True)


def test_the_command_line_warns_and_goes_on() -> None:
    text = document("y = sum_reduce(x, 2);").encode()
    result = CliRunner().invoke(main, ["-", "--lenient", "-q"], input=text)
    assert result.exit_code == 0
    assert result.stderr.startswith("<stdin>:7:23: warning: read as axes = 2\n")
    assert "axes = [2]" in result.stdout


def test_slopes_of_an_axis_that_fits_are_read_as_they_stand() -> None:
    """Unless repairs are wanted: they mean another axis than the standard says."""
    statement = "s = variable(shape = [1, 1, 3], label = 's'); y = prelu(v, s);"
    text = document(f"v = reshape(x, shape = [1, 3, 3, -1]); {statement}")
    text = text.replace("[1, 3, 8]", "[1, 3, 9]")
    slopes = nnef_grad.loads(text).operations[-1].inputs[1]
    assert slopes.shape == (1, 1, 3)
    repaired = nnef_grad.loads(text, lenient=True)
    assert repaired.operations[-1].inputs[1].shape == (1, 3)
    assert len(repaired.warnings) == 1


def test_the_command_that_would_pass_is_named_if_it_would() -> None:
    text = document("y = transpose(x); z = f(x);")
    told = CliRunner().invoke(main, ["-", "-q"], input=text).stderr
    assert "needs 'axes', or read it with --lenient" in told
    assert "with all repairs" not in told
