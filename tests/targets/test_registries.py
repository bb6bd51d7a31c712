"""Operations of tract's own registries, beside those of the standard."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
from dataclasses import replace

import pytest
from support.checks import document

import nnef_grad
from nnef_grad.base.errors import UnsupportedError
from nnef_grad.frontends.tract.library import TRACT_LIBRARY
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.targets import lower

TEXT = """\
version 1.0;
extension tract_registry tract_core;

graph net( x ) -> ( y )
{
    x = external(shape = [2, 3]);
    y = tract_core_erf(x);
}
"""


def erf() -> Graph:
    """The graph of the text; reading it would put a rational function there."""
    made = nnef_grad.loads(TEXT.replace("tract_core_erf", "exp"))
    external, _ = made.operations
    x, y = external.outputs[0], Tensor("scalar", (2, 3))
    declaration = replace(TRACT_LIBRARY["tract_core_erf"], body=None)
    own = Operation(declaration, (x,), {}, (y,))
    return Graph("net", (x,), (y,), (external, own), {x: "x", y: "y"})


def test_the_registry_of_an_operation_is_named_in_place_of_a_declaration() -> None:
    assert nnef_grad.dumps(erf()) == TEXT


def test_what_is_printed_is_read() -> None:
    assert nnef_grad.loads(nnef_grad.dumps(erf())).outputs[0].shape == (2, 3)


@pytest.mark.parametrize("target", ["tract", "onnx"])
def test_some_runtimes_have_them(target: str) -> None:
    assert lower(erf(), target).graph == erf()


@pytest.mark.parametrize("target", ["tract-standard", "portable"])
def test_others_have_none_of_them(target: str) -> None:
    with pytest.raises(UnsupportedError, match="cannot run 'tract_core_erf'"):
        lower(erf(), target)


# Of operations that "tract" and "onnx" have.
GATHER = document(
    "x = external(shape = [5, 3]); i = external<integer>(shape = [2]);"
    "r = gather(x, i, axis = 0); y = tanh(r);",
    inputs="x, i",
)
READING = """
import pickle
import sys
import numpy
import nnef_grad
graph = pickle.load(sys.stdin.buffer)
feeds = {name: numpy.ones(x.shape, int if x.dtype == "integer" else float)
         for name, x in zip(graph.input_names, graph.inputs)}
(gradient,) = nnef_grad.evaluate(graph, feeds).values()
print(gradient[1, 0])
"""


@pytest.mark.parametrize("target", ["tract", "onnx"])
def test_who_reads_a_pickle_knows_what_they_compute(target: str) -> None:
    """In a process that has imported nothing for it."""
    backward = nnef_grad.differentiate(nnef_grad.loads(GATHER), wrt=["x"])
    graph = lower(backward.graph, target).graph
    assert {op.definition.registry for op in graph.operations} == {None, "tract_core"}
    pickled = pickle.dumps(graph)
    assert pickle.loads(pickled) == copy.deepcopy(graph) == graph
    done = subprocess.run(
        [sys.executable, "-c", READING], input=pickled, capture_output=True, check=False
    )
    assert done.stderr.decode() == ""
    assert float(done.stdout) == pytest.approx(2 * (1 - math.tanh(1.0) ** 2))
