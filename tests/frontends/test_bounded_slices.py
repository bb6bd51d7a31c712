"""Slices that end at an open extent, as in `position_ids[:, :S]`: torch-to-nnef bounds them by
the extent of what is cut, as Python does.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import nnef_grad
from nnef_grad.runtimes import find_runtime

HEAD = """version 1.0;
extension tract_registry tract_core;
extension tract_symbol B;
extension tract_symbol S;

fragment within_bound_index(
    index: tensor<scalar>,
    input_axis_size: tensor<scalar>
) -> ( bounded_index: tensor<scalar> )
{
    cond = ge(index, 0);
    offset = select(cond, 0, input_axis_size);
    bounded_index = tract_core_cast(min(max(0, offset + index), input_axis_size), to="tdim");
}
"""
# The first S rows of a table, and the first four of S.
TABLE = """
graph net( x ) -> ( y )
{
    x = tract_core_external(shape = [B, S, 3], datum_type = 'f32');
    table = variable<scalar>(label = 'table', shape = [1, 6, 3]);
    shape = tract_core_shape_of(x);
    length = squeeze(slice(shape, axes = [0], begin = [1], end = [2]), axes = [0]);
    rows = slice(table, axes = [1], begin = [0], end = [within_bound_index(length, 6)], stride = [1]);
    y = mul(x, rows);
}
"""
CROPPED = """
graph net( x ) -> ( y )
{
    x = tract_core_external(shape = [B, S, 3], datum_type = 'f32');
    table = variable<scalar>(label = 'table', shape = [1, 4, 3]);
    shape = tract_core_shape_of(x);
    length = squeeze(slice(shape, axes = [0], begin = [1], end = [2]), axes = [0]);
    first = slice(x, axes = [1], begin = [0], end = [within_bound_index(4, length)], stride = [1]);
    y = mul(first, table);
}
"""


def gradients(
    text: str, length: int, runtime: str
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    graph = nnef_grad.loads(HEAD + text)
    assert not graph.warnings
    assert any("is at most 6" in fact for fact in graph.facts)
    backward = nnef_grad.differentiate(graph)
    random = np.random.default_rng(length)
    (table,) = graph.variables
    values = random.standard_normal(table.shape).astype(np.float32)
    x = random.standard_normal((2, length, 3)).astype(np.float32)
    seed = random.standard_normal((2, length, 3)).astype(np.float32)
    run = find_runtime(runtime).compile(backward.graph, {"table": values})
    found = dict(zip(backward.graph.output_names, run([x, seed]), strict=True))
    return found, x, values, seed


@pytest.mark.parametrize("runtime", ["numpy", "tract", "onnxruntime"])
@pytest.mark.parametrize("length", [1, 4, 6])
def test_the_first_rows_of_a_table(length: int, runtime: str) -> None:
    found, x, values, seed = gradients(TABLE, length, runtime)
    np.testing.assert_allclose(found["grad_x"], seed * values[:, :length], rtol=1e-5)
    wanted = np.zeros_like(values)
    wanted[0, :length] = (seed * x).sum(0)
    np.testing.assert_allclose(found["grad_table"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("end", "lengths"), [(4, (1, 4, 6)), (-4, (5, 8))])
def test_what_is_cut_at_an_open_extent(end: int, lengths: tuple[int, ...]) -> None:
    """There are fewer elements where the whole has fewer; a single one is broadcast."""
    text = HEAD + CROPPED.replace("index(4,", f"index({end},")
    backward = nnef_grad.differentiate(nnef_grad.loads(text)).graph
    for length in lengths:
        x, table = torch.randn(2, length, 3).double(), torch.randn(1, 4, 3).double()
        x.requires_grad_()
        table.requires_grad_()
        y = x[:, :end] * table
        seed = torch.randn_like(y)
        wanted = torch.autograd.grad(y, [x, table], seed)
        fed = {"x": x.detach().numpy(), "grad_y": seed.numpy()}
        found = nnef_grad.evaluate(backward, fed, {"table": table.detach().numpy()})
        for name, array in zip(("grad_x", "grad_table"), wanted, strict=True):
            np.testing.assert_allclose(found[name], array, rtol=1e-9)


def test_numbers_are_cut_off_as_in_python() -> None:
    graph = nnef_grad.loads(HEAD + TABLE, symbols={"B": 2, "S": 6})
    assert not graph.warnings
    assert graph.tensors["rows"].shape == (1, 6, 3)
