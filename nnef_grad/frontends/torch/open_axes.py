"""The axes of a program whose extents stay open, and what these are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from nnef_grad.frontends.torch.symbols import Symbols
from nnef_grad.graph.extents import Dimension, symbol
from nnef_grad.graph.names import NameSupply


def of_batch(module: nn.Module, given: Any) -> Any:
    """The first axis of each tensor as one that is open: it is given another number."""
    first = torch.export.Dim("batch")

    def axes(x: Any) -> Any:
        return {0: first} if isinstance(x, torch.Tensor) and x.ndim else None

    if isinstance(given, torch.Tensor):
        given = (given,)
    return pytree.tree_map(
        axes, dict(given) if isinstance(given, Mapping) else tuple(given)
    )


def symbols_of(
    program: ExportedProgram, dynamic_shapes: Any, batch: int | None
) -> Symbols:
    """The extents of the symbols of a program. They are called after their `Dim`, or else
    after the first input and axis that has them.
    """
    found: dict[Any, Dimension] = {}
    supply = NameSupply()
    for node in program.graph.nodes:
        fake = node.meta.get("val") if node.op == "placeholder" else None
        for axis, size in enumerate(getattr(fake, "shape", ())):
            expression = getattr(getattr(size, "node", None), "expr", None)
            if getattr(expression, "is_Symbol", False) and expression not in found:
                name = _name_of_axis(program, node.name, axis, dynamic_shapes)
                made = symbol(supply.fresh(name))
                found[expression] = made if batch is None else batch
    return Symbols(found)


def _name_of_axis(
    program: ExportedProgram, name: str, axis: int, dynamic_shapes: Any
) -> str:
    """The name of the extent of an axis."""
    names = [spec.arg.name for spec in program.graph_signature.input_specs
             if spec.kind is InputKind.USER_INPUT]  # fmt: skip
    leaves = pytree.tree_leaves(dynamic_shapes, is_leaf=lambda x: _is_axes(x))
    if name in names and len(leaves) == len(names):
        axes = leaves[names.index(name)]
        found = (
            axes.get(axis) if isinstance(axes, dict) else axes[axis] if axes else None
        )
        name_of_dim = getattr(found, "__name__", None)
        if name_of_dim is not None:
            return str(name_of_dim)
    return f"{name.upper()}_{axis}"


def _is_axes(x: Any) -> bool:
    """Whether this says which axes of one tensor are open."""
    if x is None:
        return True
    items = (
        x.values() if isinstance(x, dict) else x if isinstance(x, (list, tuple)) else ()
    )
    keys = x if isinstance(x, dict) else [0]
    is_flat = all(not isinstance(item, (dict, list, tuple, str)) for item in items)
    return bool(items) and is_flat and all(isinstance(key, int) for key in keys)
