"""Operations of tract's own registries, beside those of the standard."""

from __future__ import annotations

from dataclasses import replace

import pytest

import nnef_grad
from nnef_grad.base.errors import UnsupportedError
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.printer import print_graph
from nnef_grad.language.library import tract_library
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
    declaration = replace(tract_library()["tract_core_erf"], body=None)
    own = Operation(declaration, (x,), {}, (y,))
    return Graph("net", (x,), (y,), (external, own), {x: "x", y: "y"})


def test_the_registry_of_an_operation_is_named_in_place_of_a_declaration() -> None:
    assert print_graph(erf()) == TEXT


def test_what_is_printed_is_read() -> None:
    assert nnef_grad.loads(print_graph(erf())).outputs[0].shape == (2, 3)


@pytest.mark.parametrize("target", ["tract", "onnx"])
def test_some_runtimes_have_them(target: str) -> None:
    assert lower(erf(), target).graph == erf()


@pytest.mark.parametrize("target", ["tract-standard", "portable"])
def test_others_have_none_of_them(target: str) -> None:
    with pytest.raises(UnsupportedError, match="cannot run 'tract_core_erf'"):
        lower(erf(), target)
