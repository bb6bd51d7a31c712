"""Every operation as the text of a document of tract's dialect has it: it is read back as
what it was, though the dialect has some operations otherwise.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.checks import document
from support.operation_models import Model, models

import nnef_grad
from nnef_grad.graph.ir import Graph
from nnef_grad.graph.printer import print_graph
from nnef_grad.interpreter.random_values import random_values
from nnef_grad.targets.tract.dialect import in_dialect

VERSION = "version 1.0;\n"
EXTENSION = f"{VERSION}extension tract_registry tract_core;\n"
_NEGATIVE = "x = external(shape = [2, 3, 4, 4]); n = sub(-1.0, abs(x));"
_SETTINGS = "size = [1, 1, 3, 3], padding = [(0, 0), (0, 0), (1, 1), (1, 1)]"


def computes_the_same(graph: Graph) -> None:
    text = print_graph(in_dialect(graph)).replace(VERSION, EXTENSION, 1)
    again = nnef_grad.loads(text)
    values = random_values(graph, seed=0)
    found = nnef_grad.evaluate(again, values.inputs, values.variables)
    wanted = nnef_grad.evaluate(graph, values.inputs, values.variables)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_an_operation_is_read_back(model: Model) -> None:
    computes_the_same(nnef_grad.loads(model.text))


@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_gradients_are_read_back(model: Model) -> None:
    computes_the_same(nnef_grad.differentiate(nnef_grad.loads(model.text)).graph)


@pytest.mark.parametrize(
    "statement",
    [
        f"y = max_pool(n, {_SETTINGS});",
        f"y, i = max_pool_with_index(n, {_SETTINGS});",
        f"y = max_pool(n, {_SETTINGS}, border = 'ignore');",
    ],
)
def test_a_maximum_over_zeros_is_read_back(statement: str) -> None:
    computes_the_same(nnef_grad.loads(document(f"{_NEGATIVE} {statement}")))


def test_the_text_of_a_graph_with_symbols_has_the_filters_of_the_dialect() -> None:
    text = (
        f"{EXTENSION}extension tract_symbol B;\n"
        "graph net( x, w ) -> ( y )\n{\n"
        "    x = external(shape = [B, 3, 5, 5]);\n"
        "    w = external(shape = [3, 3, 3, 3]);\n"
        "    y = conv(x, w, padding = [(1, 1), (1, 1)]);\n}\n"
    )
    backward = nnef_grad.differentiate(nnef_grad.loads(text)).graph
    again = nnef_grad.loads(nnef_grad.dumps(backward))
    random = np.random.default_rng(0)
    shapes = {"x": (2, 3, 5, 5), "w": (3, 3, 3, 3), "grad_y": (2, 3, 5, 5)}
    fed = {name: random.standard_normal(shape) for name, shape in shapes.items()}
    wanted = nnef_grad.evaluate(backward, fed)
    for name, array in nnef_grad.evaluate(again, fed).items():
        np.testing.assert_allclose(array, wanted[name], rtol=1e-9, atol=1e-12)


def test_a_filter_in_a_loop_is_read_back() -> None:
    text = f"""{EXTENSION}extension KHR_enable_fragment_definitions;

fragment cell( x: tensor<scalar>, w: tensor<scalar>, s: tensor<scalar> )
-> ( n: tensor<scalar> )
{{
    y = deconv(x, w, 0.0, padding = [(1, 1)]);
    n = s + y;
}}

graph net( x, w, s ) -> ( y )
{{
    x = external(shape = [6, 3, 4]);
    w = external(shape = [3, 3, 3]);
    s = external(shape = [1, 3, 4]);
    y = tract_core_scan(body = 'cell', scan = [('x', x, 0, 1)], full = [('w', w)],
        state = [('s', s, 'n')], output = [('n', 'last', 0, 1)]);
}}
"""
    loop = nnef_grad.loads(text, unroll=0)
    again = nnef_grad.loads(nnef_grad.dumps(loop), unroll=0)
    values = random_values(loop, seed=0)
    y, other = (nnef_grad.evaluate(g, values.inputs)["y"] for g in (loop, again))
    np.testing.assert_allclose(other, y, rtol=1e-9, atol=1e-12)
