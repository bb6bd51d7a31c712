"""Control flow of ONNX, expanded while a model is folded: branches are taken, loops are
unrolled, and sequences become their tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx.helper import make_node

from nnef_grad.interop.onnx_files.evaluation import attribute_of, shape_of

if TYPE_CHECKING:
    from nnef_grad.interop.onnx_files.folding import Folding

# A loop that is longer would make a graph that nobody can use.
_LONGEST = 10_000


# ---- Branches and loops ----


def take_branch(folding: Folding, node: Any) -> bool:
    """An `If`: the branch that is taken."""
    condition = _known(folding, node, node.input[0], "its condition")
    branch = attribute_of(node, "then_branch" if condition else "else_branch")
    _rename(folding, _inline(folding, branch, {}), node.output)
    return True


def unroll(folding: Folding, node: Any) -> bool:
    """A `Loop`: its body, as often as it runs."""
    limit, condition, *state = node.input
    body = attribute_of(node, "body")
    rows: list[list[str]] = []
    count = _known(folding, node, limit, "its length") if limit else _LONGEST
    while len(rows) < count and _goes_on(folding, node, condition):
        if len(rows) == _LONGEST:
            folding.refuse(node, f"it has more than {_LONGEST} iterations")
        counters = _counters(folding, body, len(rows))
        names = (item.name for item in body.input)
        pairs = zip(names, [*counters, *state], strict=True)
        condition, *results = _inline(folding, body, dict(pairs))
        state, row = results[: len(state)], results[len(state) :]
        rows.append(row)
    _rename(folding, state, node.output[: len(state)])
    for place, result in enumerate(node.output[len(state) :]):
        if result:
            _stack(folding, [row[place] for row in rows], result, 0)
    return True


def _goes_on(folding: Folding, node: Any, condition: str) -> bool:
    return not condition or _known(folding, node, condition, "its condition")


def _counters(folding: Folding, body: Any, index: int) -> list[str]:
    """Names for the number of the iteration, and for the condition, which holds."""
    names = [folding.supply.fresh(item.name) for item in body.input[:2]]
    for name, value in zip(names, (np.int64(index), np.bool_(True)), strict=True):
        folding.enter(name, np.asarray(value))
    return names


def _known(folding: Folding, node: Any, name: str, what: str) -> Any:
    """The number that a tensor is known to be."""
    if name not in folding.arrays:
        advice = "export the network with a fixed one"
        folding.refuse(node, f"{what} depends on the values of its operands: {advice}")
    return folding.arrays[name].item()


def _inline(folding: Folding, body: Any, given: Mapping[str, str]) -> list[str]:
    """Visits the nodes of a body, with names of their own for what it makes. Returns
    the names of its results.

    Args:
        folding: the folding.
        body: the body.
        given: the names of its operands outside, by those inside.
    """
    names = dict(given)
    data = [make_node("Constant", [], [i.name], value=i) for i in body.initializer]
    for node in (*data, *body.node):
        own = onnx.NodeProto()
        own.CopyFrom(node)
        _rename_operands(own, names)
        names |= {name: folding.supply.fresh(name) for name in node.output if name}
        own.output[:] = [names.get(name, "") for name in node.output]
        folding.visit(own)
    return [names.get(output.name, output.name) for output in body.output]


def _rename_operands(node: Any, names: Mapping[str, str]) -> None:
    """Renames the operands of a node, and those of the nodes in its bodies."""
    node.input[:] = [names.get(name, name) for name in node.input]
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                _rename_operands(inner, names)
            for output in attribute.g.output:
                output.name = names.get(output.name, output.name)


def _rename(folding: Folding, names: Sequence[str], wanted: Sequence[str]) -> None:
    for name, result in zip(names, wanted, strict=True):
        if result:
            folding.visit(make_node("Identity", [name], [result]))


def _stack(folding: Folding, names: Sequence[str], result: str, axis: int) -> None:
    """The tensors with these names, along a new axis."""
    axes = folding.supply.fresh("axes")
    folding.enter(axes, np.array([axis]))
    wide = [folding.supply.fresh(name) for name in names]
    for name, made in zip(names, wide, strict=True):
        is_operand = folding.version >= 13
        operands, attributes = ([axes], {}) if is_operand else ([], {"axes": [axis]})
        folding.visit(make_node("Unsqueeze", [name, *operands], [made], **attributes))
    folding.visit(make_node("Concat", wide, [result], axis=axis))


# ---- Sequences ----


def sequence(folding: Folding, node: Any) -> bool:
    """A new sequence: `SequenceEmpty` or `SequenceConstruct`."""
    folding.sequences[node.output[0]] = list(node.input)
    return True


def insert(folding: Folding, node: Any) -> bool:
    """`SequenceInsert`: a copy with one more tensor, at the end if no place is given."""
    items = list(folding.sequences[node.input[0]])
    place = len(items)
    if len(node.input) > 2:
        place = _known(folding, node, node.input[2], "its position")
    items.insert(place, node.input[1])
    folding.sequences[node.output[0]] = items
    return True


def item(folding: Folding, node: Any) -> bool:
    """`SequenceAt`: one tensor of a sequence."""
    place = _known(folding, node, node.input[1], "its position")
    _rename(folding, [folding.sequences[node.input[0]][place]], node.output)
    return True


def length(folding: Folding, node: Any) -> bool:
    """`SequenceLength`."""
    count = len(folding.sequences[node.input[0]])
    folding.enter(node.output[0], np.asarray(count, np.int64))
    return True


def concatenate(folding: Folding, node: Any) -> bool:
    """`ConcatFromSequence`: along an axis of its tensors, or a new one."""
    items, axis = folding.sequences[node.input[0]], attribute_of(node, "axis")
    if attribute_of(node, "new_axis", 0):
        _stack(folding, items, node.output[0], axis)
    else:
        folding.visit(make_node("Concat", items, node.output, axis=axis))
    return True


def split(folding: Folding, node: Any) -> bool:
    """`SplitToSequence`: parts of given extents, or of extent 1, whose axis may go."""
    shape = shape_of(folding.types[node.input[0]])
    axis = attribute_of(node, "axis", 0)
    if shape is None:
        folding.refuse(node, "the shape of its operand depends on values")
    extents = _parts(folding, node, shape[axis])
    name = node.output[0]
    sizes = folding.supply.fresh("sizes")
    folding.enter(sizes, np.array(extents))
    items = [folding.supply.fresh(name) for _ in extents]
    folding.visit(make_node("Split", [node.input[0], sizes], items, axis=axis))
    if len(node.input) == 1 and not attribute_of(node, "keepdims", 1):
        axes = folding.supply.fresh("axes")
        folding.enter(axes, np.array([axis]))
        wide, items = items, [folding.supply.fresh(name) for _ in extents]
        for given, made in zip(wide, items, strict=True):
            folding.visit(make_node("Squeeze", [given, axes], [made]))
    folding.sequences[name] = items
    return True


def _parts(folding: Folding, node: Any, extent: int) -> list[int]:
    if len(node.input) == 1:
        return [1] * extent
    if node.input[1] not in folding.arrays:
        folding.refuse(node, "the extents of its parts depend on values")
    given = folding.arrays[node.input[1]]
    if given.ndim:
        return list(given.tolist())
    size = given.item()
    return [min(size, extent - start) for start in range(0, extent, size)]


def alias(folding: Folding, node: Any) -> bool:
    """`Identity` of a sequence."""
    if node.input[0] not in folding.sequences:
        return False
    folding.sequences[node.output[0]] = folding.sequences[node.input[0]]
    return True


# The function of each operation, which returns whether it has expanded a node.
EXPANSIONS: dict[str, Callable[[Folding, Any], bool]] = {
    "ConcatFromSequence": concatenate,
    "Identity": alias,
    "If": take_branch,
    "Loop": unroll,
    "SequenceAt": item,
    "SequenceConstruct": sequence,
    "SequenceEmpty": sequence,
    "SequenceInsert": insert,
    "SequenceLength": length,
    "SplitToSequence": split,
}
