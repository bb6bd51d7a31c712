"""Rows of tables at indices."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.torch.operations.shapes import rows, section
from nnef_grad.frontends.values import shape_of
from nnef_grad.graph.ir import Tensor

_SCALED = "scale_grad_by_freq = True is not supported: scale the gradients yourself"


@aten("embedding")
def embedding(call: Call, weight: Any, numbers: Any, padding: int = -1, *_: Any) -> Any:
    """The rows at indices; no gradient reaches the one for padding."""
    call.require(not call.args["scale_grad_by_freq"], _SCALED)
    vectors = rows(call, weight, numbers, 0)
    if padding < 0:
        return vectors
    is_padding = call("eq", numbers, padding, hint="padding")
    column = call("unsqueeze", is_padding, axes=[len(shape_of(numbers))])
    return call("select", column, call.stopped(vectors), vectors)


# ---- Bags of rows ----


@aten("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(call: Call, weight: Any, numbers: Any, offsets: Any, *_: Any) -> Any:
    """The rows of each bag, reduced. A bag is what follows an offset."""
    padding, factors = map(call.args.get, ("padding_idx", "per_sample_weights"))
    call.require(not call.args["scale_grad_by_freq"], _SCALED)
    # -1 is the last row, but none in what PyTorch makes of the operation.
    is_none = padding is None or (padding < 0 and call.packet != "embedding_bag")
    call.require(is_none, "padding_idx is not supported: use embedding, and a sum")
    found = rows(call, weight, numbers, 0)
    if factors is not None:
        column = call("unsqueeze", factors, hint="factors", axes=[1])
        found = call("mul", found, column, hint="rows")
    # The other results are for PyTorch's own derivative.
    return call.alone(_of_bags(call, found, numbers, offsets))


def _of_bags(call: Call, found: Any, numbers: Any, offsets: Any) -> Any:
    """The rows of each bag, reduced. Bags of one length are rows of a matrix."""
    mode, has_end = call.args["mode"], call.args["include_last_offset"]
    total = shape_of(numbers)[0]
    count, width = call.result_shapes[0]
    if isinstance(offsets, Tensor):
        # What PyTorch gives for a matrix of indices whose number of rows is open.
        is_even = str(call.node.args[2].target) == "aten.arange.start_step"
        call.require(is_even and not has_end, "the offsets must be known")
        lengths = {total // count}
    else:
        ends = [*np.asarray(offsets).tolist(), *([] if has_end else [total])]
        lengths = {end - begin for begin, end in pairwise(ends)}
        found = section(call, found, 0, 0, ends[-1])
    if len(lengths) == 1 and lengths != {0}:
        bags = call.reshaped(found, [count, *lengths, width], "bags")
        return _reduced(call, bags, mode)
    parts = []
    for begin, end in pairwise(ends):
        # A bag without rows is zero.
        part = section(call, found, 0, begin, end)
        bag = call("unsqueeze", part, hint="bag", axes=[0]) if begin < end else None
        parts.append(np.zeros((1, width)) if bag is None else _reduced(call, bag, mode))
    return call("concat", parts, axis=0)


_SUM, _MEAN, _MAX = range(3)


def _reduced(call: Call, bags: Any, mode: int) -> Any:
    """Sums, means or maxima of bags: of equal ones the first has all the gradient."""
    if mode == _MAX:
        size = [1, shape_of(bags)[1], 1]
        made = call("max_pool", bags, size=size, padding=[(0, 0)] * 3, border="ignore")
    else:
        made = call("sum_reduce", bags, axes=[1], normalize=mode == _MEAN)
    return call("squeeze", made, axes=[1])
