"""Recurrent layers of language models, whose states are operands and results."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt
from typing import Any

from nnef_grad.frontends.expansions.loops import Weights, scan_along
from nnef_grad.frontends.expansions.products import shared
from nnef_grad.frontends.expansions.windows import Axis, conv
from nnef_grad.frontends.tract.evaluation import expansion
from nnef_grad.frontends.values import shape_of
from nnef_grad.frontends.view import View


@expansion(
    "tract_transformers_causal_conv1d_update", "tract_qwen35_causal_conv1d_update"
)
def convolution(view: View, x: Any, weight: Any, state: Any) -> Any:
    """silu of a convolution of each channel with what came before, and the last elements of it.
    A state without the axis of the batch belongs to one element of each channel.
    """
    *_, channels, width = own = shape_of(state)
    if len(own) == 2:
        x = view.reshaped(x, [1, channels, 1], "new")
        state = view("unsqueeze", state, hint="before", axes=[0])
    filters = view.reshaped(weight, [channels, 1, width], "filter")
    whole = view("concat", [state, x], hint="whole", axis=2)
    steps = shape_of(x)[2]
    read = view.piece(whole, 2, 1, steps + width, "read")
    sliding = Axis(shape_of(read)[2], width, 1, 1, 0, 0)
    made = view("silu", conv(view, read, filters, 0.0, [sliding], groups=0))
    last = view.piece(whole, 2, steps, steps + width, "state")
    if len(own) == 2:
        return view.reshaped(made, [1, 1, channels]), view.reshaped(last, own)
    return made, last


@expansion("tract_transformers_gdn_recurrent", "tract_qwen35_gdn_recurrent")
def delta_network(
    view: View, q: Any, k: Any, v: Any, decay: Any, beta: Any, state: Any
) -> Any:
    """A gated delta network: at each step, the matrix of each head fades, and moves to map
    the key to the value. Several heads of v may share a head of q and k.
    """
    batch, _, heads, width = shape_of(v)
    rows = [view("unsqueeze", x, hint="row", axes=[3]) for x in (q, k, v)]
    rows = [shared(view, x, heads) for x in rows]
    rows += [view("unsqueeze", x, hint="number", axes=[3, 4]) for x in (decay, beta)]
    ends = [0, width, 2 * width, 3 * width, 3 * width + 1, 3 * width + 2]

    def cell(_: View, states: list[Any], part: Any, __: Weights) -> list[Any]:
        pieces = [view.piece(part, 3, *place, "part") for place in pairwise(ends)]
        scale = 1.0 / sqrt(width)
        step = view.expand("gated_delta_step", *pieces, states[1], scale=scale)
        return list(step)

    nothing = view(
        "constant", hint="nothing", shape=[batch, heads, 1, width], value=[0.0]
    )
    packed = view("concat", rows, hint="steps", axis=4)
    states, weights = [nothing, state], Weights(None, None)
    made, (_, last) = scan_along(view, cell, packed, 1, states, weights, is_back=False)
    return view("squeeze", made, axes=[3]), last
