"""Concatenations of what an earlier one has joined already.

    first = concat([a, b], axis = 1);
    second = concat([a, b, c], axis = 1);

A densely connected network (Huang et al. 2017) joins the results of all layers so far, at
each layer. What a and b receive from `second` is divided with what `first` receives: n layers
then take n slices and sums, in place of a slice and a sum for each pair of layers.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from nnef_grad.graph.ir import Operation, Tensor

CONCAT = "concat"


def of_shared_parts(
    operations: Iterable[Operation], active: Container[Tensor], named: Container[Tensor]
) -> dict[Operation, Operation]:
    """For concatenations that begin with all parts of an earlier one, the same of its result
    and of the other parts.

    Args:
        operations: those that gradients flow through, in order.
        active: the tensors that gradients flow through.
        named: the tensors that the user named: what they receive is that of their own uses.
    """
    results: dict[object, Tensor] = {}
    found = {}
    for operation in operations:
        if operation.name != CONCAT:
            continue
        (parts,), (result,) = operation.operands, operation.outputs
        assert isinstance(parts, tuple)
        axis = operation.attributes["axis"]
        for end in range(len(parts) - 1, 1, -1):
            whole = results.get((axis, parts[:end]))
            if whole is not None and sum(part in active for part in parts[:end]) > 1:
                operands = ((whole, *parts[end:]),)
                found[operation] = operation.rewired(operands, operation.results)
                break
        if result not in named:
            results.setdefault((axis, parts), result)
    return found
