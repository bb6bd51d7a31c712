"""The garbage collector is paused, and has nothing to do."""

from __future__ import annotations

import gc

import pytest

import nnef_grad
from nnef_grad.base.process import collector_paused

MODEL = """version 1.0;

graph net( x ) -> ( y )
{
    x = external(shape = [1, 4, 8, 8]);
    w = variable(shape = [4, 4, 3, 3], label = 'w');
    h = conv(x, w, stride = [2, 2]);
    y = softmax(h);
}
"""


def compiled() -> str:
    backward = nnef_grad.differentiate(nnef_grad.loads(MODEL))
    return nnef_grad.dumps(nnef_grad.lower(backward.graph, "portable").graph)


def test_the_compiler_makes_no_cycles() -> None:
    compiled()  # what is made once stays
    gc.collect()
    with collector_paused():
        compiled()
        assert gc.collect() == 0


def test_the_collector_goes_on_after_the_outermost_pause() -> None:
    with collector_paused():
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_goes_on_after_an_error() -> None:
    with pytest.raises(nnef_grad.NnefSyntaxError):
        nnef_grad.loads("version")
    assert gc.isenabled()
