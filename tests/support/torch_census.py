"""Which operations of the core of ATen are read: python -m support.torch_census."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from nnef_grad.frontends.torch import reading as _reading  # noqa: F401
from nnef_grad.frontends.torch.call import OPERATIONS, function_of

# Those that are not read, and why.
LACKING = {
    "aten._adaptive_avg_pool2d_backward.default": "a derivative",
    "aten.avg_pool2d_backward.default": "a derivative",
    "aten.convolution_backward.default": "a derivative",
    "aten.max_pool2d_with_indices_backward.default": "a derivative",
    "aten.resize_.default": "changes the extents of a tensor in place",
    "aten._native_batch_norm_legit.default": "writes into its buffers: the functional form is read",
}


def core() -> Iterator[Any]:
    """The operations that torch counts to its core."""
    names = torch._C._dispatch_get_all_op_names()
    found = {n.split("::")[1].split(".")[0] for n in names if n.startswith("aten::")}
    for name in sorted(found):
        packet = getattr(torch.ops.aten, name)
        overloads = (getattr(packet, overload) for overload in packet.overloads())
        yield from (op for op in overloads if torch.Tag.core in op.tags)


def census() -> dict[str, str]:
    """How each of them is read: by a function of ours, or as torch decomposes it."""
    decomposed = torch.export.default_decompositions()
    return {
        str(op): "read"
        if function_of(op) is not None
        else "decomposed"
        if op in decomposed
        else LACKING.get(str(op), "lacking")
        for op in core()
    }


def main() -> None:
    found = census()
    for name, how in found.items():
        print(f"{name:60} {how}")
    counts = {
        how: [*found.values()].count(how) for how in dict.fromkeys(found.values())
    }
    print(f"{len(found)} operations: {counts}; {len(OPERATIONS)} names are read in all")


if __name__ == "__main__":
    main()
