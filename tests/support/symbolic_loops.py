"""Recurrent layers in tract's dialect whose batch, and maybe whose number of steps, is a
symbol, with the same in torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

Tensors = Mapping[str, torch.Tensor]
# The states of a cell after a step, of which the first one is collected.
States = tuple[torch.Tensor, ...]

FEATURES, HIDDEN = 3, 4


class Cell(NamedTuple):
    """A step of a recurrence.

    Attributes:
        gates: how many rows of the hidden size its weights have.
        states: the names of its states.
        body: the statements of its fragment, from `x` and these to `new_h`, ...
        step: the same in torch.
    """

    gates: int
    states: tuple[str, ...]
    body: str
    step: Callable[[torch.Tensor, States, Tensors], States]


def rnn(x: torch.Tensor, states: States, p: Tensors) -> States:
    (h,) = states
    return (torch.tanh(x @ p["w"] + h @ p["u"] + p["b"]),)


def lstm(x: torch.Tensor, states: States, p: Tensors) -> States:
    h, c = states
    i, f, g, o = (x @ p["w"] + h @ p["u"] + p["b"]).chunk(4, dim=-1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def gru(x: torch.Tensor, states: States, p: Tensors) -> States:
    (h,) = states
    xr, xz, xn = (x @ p["w"] + p["b"]).chunk(3, dim=-1)
    hr, hz, hn = (h @ p["u"]).chunk(3, dim=-1)
    z = torch.sigmoid(xz + hz)
    return ((1 - z) * torch.tanh(xn + torch.sigmoid(xr + hr) * hn) + z * h,)


CELLS = {
    "rnn": Cell(1, ("h",), "new_h = tanh(matmul(x, w) + matmul(h, u) + b);", rnn),
    "lstm": Cell(
        4,
        ("h", "c"),
        """[i, f, g, o] = split(matmul(x, w) + matmul(h, u) + b, axis = 1, ratios = [1, 1, 1, 1]);
    new_c = sigmoid(f) * c + sigmoid(i) * tanh(g);
    new_h = sigmoid(o) * tanh(new_c);""",
        lstm,
    ),
    "gru": Cell(
        3,
        ("h",),
        """[xr, xz, xn] = split(matmul(x, w) + b, axis = 1, ratios = [1, 1, 1]);
    [hr, hz, hn] = split(matmul(h, u), axis = 1, ratios = [1, 1, 1]);
    z = sigmoid(xz + hz);
    new_h = (1.0 - z) * tanh(xn + sigmoid(xr + hr) * hn) + z * h;""",
        gru,
    ),
}


def document(
    cell: Cell, steps: int | str, axis: int = 1, chunk: int = 1, batch: str = "B"
) -> str:
    """A layer: the first state after each step, and all of them after the last one. The
    elements of a chunk are features of one step.
    """
    extents = [batch, steps] if axis == 1 else [steps, batch]
    rows, features = cell.gates * HIDDEN, FEATURES * abs(chunk)
    tensors = ["xs", *cell.states, "w", "u", "b"]
    parameters = ", ".join(f"{name}: tensor<scalar>" for name in tensors)
    news = [f"new_{name}" for name in cell.states]
    results = ", ".join(f"{name}: tensor<scalar>" for name in ["row", *news])
    firsts = "".join(
        f"    {s} = tract_core_external(shape = [{batch}, {HIDDEN}], datum_type = 'f32');\n"
        for s in cell.states
    )
    carried = ", ".join(f"('{s}', {s}, 'new_{s}')" for s in cell.states)
    kept = "".join(f", ('new_{s}', 'last', 0, 1)" for s in cell.states)
    lasts = ", ".join(f"last_{s}" for s in cell.states)
    way = 1 if chunk > 0 else -1
    return f"""version 1.0;
extension tract_registry tract_core;
extension tract_symbol B;
extension tract_symbol T;

fragment cell( {parameters} ) -> ( {results} )
{{
    by_row = transpose(xs, axes = [{"0, 1, 2" if axis == 1 else "1, 0, 2"}]);
    x = reshape(by_row, shape = [{batch}, {features}]);
    {cell.body}
    row = unsqueeze(new_h, axes = [{axis}]);
}}

graph net( x, {", ".join(cell.states)} ) -> ( y, {lasts} )
{{
    x = tract_core_external(shape = [{extents[0]}, {extents[1]}, {FEATURES}], datum_type = 'f32');
{firsts}    w = variable(label = 'w', shape = [{features}, {rows}]);
    u = variable(label = 'u', shape = [{HIDDEN}, {rows}]);
    b = variable(label = 'b', shape = [1, {rows}]);
    y, {lasts} = tract_core_scan(body = 'cell', scan = [('xs', x, {axis}, {chunk})],
        full = [('w', w), ('u', u), ('b', b)], state = [{carried}],
        output = [('row', 'full', {axis}, {way}){kept}]);
}}
"""
