"""Recurrent networks of torch, with the same in tract's dialect."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]

# The body of a loop: the states, their next values, what they are computed from.
CELLS = {
    "RNN": ("h",
        """
    h1 = tanh(x1 + matmul(h, u1, transposeB = true) + v1);
"""),
    "GRU": ("h",
        """
    r = sigmoid(x1 + matmul(h, u1, transposeB = true) + v1);
    z = sigmoid(x2 + matmul(h, u2, transposeB = true) + v2);
    n = tanh(x3 + r * (matmul(h, u3, transposeB = true) + v3));
    h1 = (1.0 - z) * n + z * h;
"""),
    "LSTM": ("hc",
        """
    i = sigmoid(x1 + matmul(h, u1, transposeB = true) + v1);
    f = sigmoid(x2 + matmul(h, u2, transposeB = true) + v2);
    g = tanh(x3 + matmul(h, u3, transposeB = true) + v3);
    o = sigmoid(x4 + matmul(h, u4, transposeB = true) + v4);
    c1 = f * c + i * g;
    h1 = o * tanh(c1);
"""),
}  # fmt: skip
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def document(
    kind: str, shape: tuple[int, int, int], hidden: int, layers: int, ways: int
) -> tuple[str, list[str]]:
    """A network of a kind, and the names of its variables, which are gates of torch's.

    Args:
        kind: RNN, GRU or LSTM.
        shape: steps, batch, channels of the input.
        hidden: the channels of a state.
        layers: how many layers there are.
        ways: how many directions, one or two.
    """
    states, body = CELLS[kind]
    numbers = range(1, GATES[kind] + 1)
    given = [f"{word}{n}" for n in numbers for word in "xuv"] + [*states]
    parameters = ", ".join(f"{name}: tensor<scalar>" for name in given)
    results = ", ".join(f"{name}1: tensor<scalar>" for name in states)
    variables: list[str] = []
    lines = [
        f"x = tract_core_external(shape = {list(shape)}, datum_type = 'f32');",
        f"zeros = tile([[[0.0]]], repeats = [1, {shape[1]}, {hidden}]);",
    ]

    def variable(name: str, extents: list[int]) -> None:
        variables.append(name)
        lines.append(f"{name} = variable<scalar>(label = '{name}', shape = {extents});")

    x, channels = "x", shape[2]
    for layer in range(layers):
        made = []
        for way in range(ways):
            end = f"l{layer}{'_reverse' * way}"
            for n in numbers:
                variable(f"weight_ih_{end}_{n}", [1, hidden, channels])
                variable(f"weight_hh_{end}_{n}", [1, hidden, hidden])
                variable(f"bias_ih_{end}_{n}", [1, 1, hidden])
                variable(f"bias_hh_{end}_{n}", [1, 1, hidden])
                lines.append(
                    f"x_{end}_{n} = matmul({x}, weight_ih_{end}_{n}, transposeB = true)"
                    f" + bias_ih_{end}_{n};"
                )
            step = -1 if way else 1
            scan = ", ".join(f"('x{n}', x_{end}_{n}, 0, {step})" for n in numbers)
            full = ", ".join(
                f"('u{n}', weight_hh_{end}_{n}), ('v{n}', bias_hh_{end}_{n})"
                for n in numbers
            )
            state = ", ".join(f"('{s}', zeros, '{s}1')" for s in states)
            lines.append(
                f"y_{end} = tract_core_scan(body = 'cell', scan = [{scan}], full = [{full}],"
                f" state = [{state}], output = [('h1', 'full', 0, {step})]);"
            )
            made.append(f"y_{end}")
        x, channels = f"y_{layer}", hidden * ways
        lines.append(f"{x} = concat([{', '.join(made)}], axis = 2);")
    lines.append(f"y = copy({x});")
    statements = "".join(f"    {line}\n" for line in lines)
    text = (
        "version 1.0;\nextension tract_registry tract_core;\n\n"
        f"fragment cell({parameters}) -> ({results})\n{{{body}}}\n\n"
        f"graph network(x) -> (y)\n{{\n{statements}}}\n"
    )
    return text, variables


def gate(values: torch.Tensor, name: str, gates: int) -> Array:
    """The part of a parameter of torch that a variable is, or of its gradient."""
    place = int(name.rpartition("_")[2]) - 1
    part: Array = values.detach().chunk(gates)[place].numpy()
    return part.reshape(1, *part.shape) if part.ndim == 2 else part.reshape(1, 1, -1)


def module(kind: str, channels: int, hidden: int, layers: int, ways: int) -> Any:
    """The network of torch, in double precision."""
    torch.manual_seed(0)
    made = getattr(torch.nn, kind)(channels, hidden, layers, bidirectional=ways == 2)
    return made.double()
