"""What a notebook, a debugger and `print` show."""

from __future__ import annotations

import subprocess
import sys

import nnef_grad

MODEL = """version 1.0;

graph net( x ) -> ( y )
{
    x = external(shape = [2, 3]);
    w = variable(shape = [1, 3], label = 'w');
    y = mul(x, w);
}
"""


def chain(length: int) -> nnef_grad.Graph:
    steps = "".join(f"t{n + 1} = tanh(t{n}); " for n in range(length))
    head = "t0 = external(shape = [2]); "
    text = f"version 1.0; graph g( t0 ) -> ( t{length} ) {{ {head}{steps}}}"
    return nnef_grad.loads(text)


def test_one_line() -> None:
    graph = nnef_grad.loads(MODEL)
    backward = nnef_grad.differentiate(graph)
    assert repr(graph) == "<graph net( x ) -> ( y ), operations: 3, variables: 1>"
    assert repr(backward) == (
        "<gradients of y in graph net_backward( x, grad_y ) -> ( grad_x, grad_w ),"
        " operations: 6, variables: 1>"
    )
    assert repr(nnef_grad.jacobian(graph, wrt="x")).startswith("<Jacobians of y in ")


def test_a_line_is_short() -> None:
    inputs = [f"x{n}" for n in range(100)]
    body = "".join(f"{name} = external(shape = [1]);" for name in inputs)
    text = f"version 1.0; graph g( {', '.join(inputs)} ) -> ( y ) {{ {body} y = add_n([{', '.join(inputs)}]); }}"
    graph = nnef_grad.loads(text)
    assert "( x0, x1, x2, x3, x4, x5, and 94 more ) -> ( y )" in repr(graph)
    assert len(repr(nnef_grad.differentiate(graph))) < 250


def test_print_shows_the_text() -> None:
    graph = nnef_grad.loads(MODEL)
    assert f"{graph}\n" == MODEL
    backward = nnef_grad.differentiate(graph)
    assert f"{backward}\n" == nnef_grad.dumps(backward)


def test_print_leaves_out_the_middle() -> None:
    graph = chain(3000)
    lines = str(graph).splitlines()
    assert len(lines) < 70
    assert lines[-2] == "    t3000 = tanh(t2999);"
    assert "    # ... 2,944 more lines: nnef_grad.dumps has them all" in lines
    shown = str(nnef_grad.differentiate(graph, wrt=list(graph.tensors)[:100]))
    assert "# ... 96 more notes" in shown.splitlines()
    assert len(shown) < 6000


def test_a_table() -> None:
    graph = nnef_grad.loads(MODEL)
    table = graph._repr_html_()
    assert table.count("<tr>") == 4
    row = "<td>y</td><td>mul(x, w)</td><td>scalar</td><td>[2, 3]</td>"
    assert row in table
    assert "<p>graph net( x ) -&gt; ( y )," in table
    assert "<p>gradients of y in" in nnef_grad.differentiate(graph)._repr_html_()
    long = chain(3000)._repr_html_()
    assert ">... 2,941 more<" in long
    assert len(long) < 10_000


def test_a_table_has_the_attributes_that_change_what_is_computed() -> None:
    graph = nnef_grad.loads("""version 1.0;
graph net( x ) -> ( y )
{
    x = external(shape = [2, 3]);
    w = variable(shape = [4, 3], label = 'w');
    y = matmul(x, w, transposeB = true);
}
""")
    assert "<td>matmul(x, w, transposeB = true)</td>" in graph._repr_html_()
    backward = nnef_grad.differentiate(graph)
    assert "matmul(grad_y, x, transposeA = true)" in backward._repr_html_()


def test_only_public_names_are_listed() -> None:
    """In a process of its own: an import of a module of the package adds its name."""
    program = (
        "import nnef_grad; assert dir(nnef_grad) == sorted(nnef_grad.__all__);"
        "import sys; assert 'numpy' not in sys.modules and 'lark' not in sys.modules;"
        "[getattr(nnef_grad, name) for name in nnef_grad.__all__];"
        "assert dir(nnef_grad) == sorted(nnef_grad.__all__)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
