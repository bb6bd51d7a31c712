"""Conditions on how an operation is set: on its attributes, types and shapes.

What they mean for a runtime stands in runtimes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from nnef_grad.graph.ir import Operation, Shape, Tensor, shape_of

When = Callable[[Operation], bool]


def always(operation: Operation) -> bool:
    """Whatever the settings are."""
    return True


def either(*conditions: When) -> When:
    """One of several conditions."""
    return lambda operation: any(holds(operation) for holds in conditions)


def both(*conditions: When) -> When:
    """All of several conditions."""
    return lambda operation: all(holds(operation) for holds in conditions)


def of_type(dtype: str) -> When:
    """The generic data type is this one."""
    return lambda operation: operation.dtype == dtype


def other_than(**settings: Any) -> When:
    """An attribute is not what it is here."""
    return lambda operation: any(
        operation.settings[name] != value for name, value in settings.items()
    )


def with_border(*borders: str) -> When:
    """The border is one of these."""
    return lambda operation: operation.attributes["border"] in borders


def operand_shape(operation: Operation) -> Shape:
    """Of the first operand."""
    return shape_of(operation.operands[0])


def result_shape(operation: Operation) -> Shape:
    """Of the first result."""
    return operation.outputs[0].shape


def _axes(operation: Operation) -> Shape:
    axes: Shape = operation.attributes["axes"]
    return axes


# ---- Ranks and axes ----


def rank_0(operation: Operation) -> bool:
    """The operand has no axes."""
    return len(operand_shape(operation)) == 0


def above_rank(rank: int) -> When:
    """The operand has more axes than these."""
    return lambda operation: len(operand_shape(operation)) > rank


def no_axes(operation: Operation) -> bool:
    """No axis is named."""
    return not _axes(operation)


def unsorted(operation: Operation) -> bool:
    """The axes are not named in ascending order."""
    return list(_axes(operation)) != sorted(_axes(operation))


def not_one_axis(operation: Operation) -> bool:
    """No axis is named, or several are."""
    return len(_axes(operation)) != 1


def scattered(operation: Operation) -> bool:
    """The axes do not stand side by side; none do not either."""
    axes = _axes(operation)
    return not axes or max(axes) - min(axes) >= len(axes)


def not_last(operation: Operation) -> bool:
    """Not just one axis is named, with nothing after it but extents of 1."""
    return (
        not_one_axis(operation)
        or prod(operand_shape(operation)[_axes(operation)[0] + 1 :]) > 1
    )


def fewer_axes(operation: Operation) -> bool:
    """Axes are left out."""
    return len(_axes(operation)) < len(operand_shape(operation))


# ---- Element by element ----


def runs_out_of_axes(operation: Operation) -> bool:
    """A loop over the axes goes on where an operand has no more of them.

    It ends as soon as each operand has as many elements left as the result, or one.
    """
    result = result_shape(operation)
    operands = [shape_of(operand) for operand in operation.operands]
    for axis in range(len(result)):
        left = [prod(shape[axis:]) for shape in operands]
        if {*left} <= {1, prod(result[axis:])}:
            return False
        if any(len(shape) <= axis for shape in operands):
            return True
    return False


def literal_condition(operation: Operation) -> bool:
    """What is chosen is known."""
    return isinstance(operation.operands[0], bool)


def literal_integers(operation: Operation) -> bool:
    """An operand is an integer, written as a literal."""
    return any(type(operand) is int for operand in operation.operands)


def unequal_terms(operation: Operation) -> bool:
    """Terms are broadcast to each other."""
    (terms,) = operation.operands
    assert isinstance(terms, tuple)
    return len(set(map(shape_of, terms))) > 1


def several_slopes(operation: Operation) -> bool:
    """The slope is a tensor with axes."""
    return len(shape_of(operation.operands[1])) > 0


def broadcast_operand(operation: Operation) -> bool:
    """The first operand is broadcast."""
    return operand_shape(operation) != result_shape(operation)


# ---- Tensors ----


def splat(operation: Operation) -> bool:
    """One value fills a shape of several elements."""
    value: Sequence[object] = operation.attributes["value"]
    return len(value) == 1 and prod(result_shape(operation)) > 1


def splat_of_no_scalar(operation: Operation) -> bool:
    """One logical or integer fills a shape of several elements."""
    return operation.dtype != "scalar" and splat(operation)


# ---- Matrices and normalisation ----


def transposed_batches(operation: Operation) -> bool:
    """An operand is transposed, and there are batches of matrices."""
    transposed = other_than(transposeA=False, transposeB=False)
    return len(operand_shape(operation)) > 2 and transposed(operation)


def different_batches(operation: Operation) -> bool:
    """Batches of matrices are broadcast."""
    left, right = map(shape_of, operation.operands)
    return left[:-2] != right[:-2]


def inner_product(operation: Operation) -> bool:
    """A row is multiplied by a column."""
    return result_shape(operation)[-2:] == (1, 1)


def no_plain_layer(operation: Operation) -> bool:
    """The matrices come in batches, or the bias is neither a literal nor a number for
    each output.
    """
    _, weights, bias = operation.operands
    shape = shape_of(weights)
    is_plain = not isinstance(bias, Tensor) or bias.shape == (1, shape[0])
    return len(shape) != 2 or not is_plain


def not_by_channel(operation: Operation) -> bool:
    """A parameter is not a tensor of the shape [1, channels]."""
    wanted = (1, *operand_shape(operation)[1:2])
    return any(shape_of(operand) != wanted for operand in operation.operands[1:])


def shared_parameters(operation: Operation) -> bool:
    """A tensor serves as two parameters."""
    return len(set(operation.operands)) < len(operation.operands)


def no_space(operation: Operation) -> bool:
    """There are no axes after batch and channels."""
    return len(operand_shape(operation)) <= 2


def across_channels(operation: Operation) -> bool:
    """The window extends along batch or channels, or there is nothing else."""
    size: Shape = operation.attributes["size"]
    return max(size[:2], default=1) > 1 or no_space(operation)


def not_across_channels(operation: Operation) -> bool:
    """The window is not an odd one along the channels of images."""
    size: Shape = operation.attributes["size"]
    return len(size) != 4 or size[1] % 2 == 0 or {size[0], *size[2:]} != {1}


# ---- Shapes ----


def of_some_axes(operation: Operation) -> bool:
    """The new shape is not that of all axes."""
    start, count = (operation.settings[f"axis_{name}"] for name in ("start", "count"))
    return bool(start != 0 or count not in (-1, len(operand_shape(operation))))


def empty_shape(operation: Operation) -> bool:
    """The new shape is empty."""
    shape = operation.attributes["shape"]
    return not shape


def open_ended(operation: Operation) -> bool:
    """An end of 0 stands for the extent."""
    is_open = {1}.issuperset(operation.attributes["stride"])
    return is_open and 0 in operation.attributes["end"]


def no_plain_range(operation: Operation) -> bool:
    """A range goes backwards, begins at a negative number, or from 0 to 0, or ends
    after the extent.
    """
    begin, end, stride = (operation.attributes[n] for n in ("begin", "end", "stride"))
    extents = [operand_shape(operation)[axis] for axis in _axes(operation)]
    return (
        any(step < 0 for step in stride)
        or any(
            first < 0 or first == last == 0
            for first, last in zip(begin, end, strict=True)
        )
        or any(last > extent for last, extent in zip(end, extents, strict=True))
    )


def needless_stride(operation: Operation) -> bool:
    """There is a stride along an axis of which one element is taken."""
    result = result_shape(operation)
    pairs = strides(operation).items()
    return any(step > 1 and result[axis] == 1 for axis, step in pairs)


def strides(operation: Operation) -> dict[int, int]:
    """The stride of a slice along each of its axes."""
    axes = _axes(operation)
    steps = operation.attributes["stride"] or (1,) * len(axes)
    return dict(zip(axes, steps, strict=True))


def repeated_once(operation: Operation) -> bool:
    """Nothing is repeated."""
    return {1}.issuperset(operation.attributes["repeats"])


def _padding(operation: Operation) -> Sequence[tuple[int, int]]:
    padding: Sequence[tuple[int, int]] = operation.attributes["padding"]
    return padding


def cropping(operation: Operation) -> bool:
    """Padding is negative."""
    return any(min(sides) < 0 for sides in _padding(operation))


def cropping_reflection(operation: Operation) -> bool:
    """Padding is negative, and the border reflects what is left or what there was."""
    return cropping(operation) and operation.attributes["border"] == "reflect"


def cropping_all(operation: Operation) -> bool:
    """Nothing of an axis is left by negative padding, before there is another."""
    columns = zip(operand_shape(operation), _padding(operation), strict=True)
    return any(n + min(p, 0) + min(q, 0) <= 0 for n, (p, q) in columns)


def beside_space(operation: Operation) -> bool:
    """Batch or channels are padded, or there are not one to three axes after them."""
    padding = _padding(operation)
    return any(map(any, padding[:2])) or not 3 <= len(padding) <= 5
