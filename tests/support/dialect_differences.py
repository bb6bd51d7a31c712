"""How tract's dialect differs from the standard: tables of docs/dialects.md."""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    """Differences between documents of the dialect and strict ones.

    Attributes:
        what: the difference.
        example: a statement or a line with it.
        reading: what it is read as.
    """

    what: str
    example: str
    reading: str


LANGUAGE = (
    Difference(
        "extension lines of tract",
        "extension tract_registry tract_core;",
        "the dialect of the document; `tract_assert` is kept as a comment",
    ),
    Difference(
        "symbols as extents",
        "extension tract_symbol B;",
        "symbols, as far as no operation needs the number, or numbers that the caller gives",
    ),
    Difference(
        "other extension lines", "extension vendor_thing;", "ignored, with a warning"
    ),
    Difference(
        "fragments and operator expressions without their extension lines",
        "y = 0.5 * x;",
        "as with them",
    ),
    Difference(
        "metadata",
        "fragment tract_core_properties() -> (...) {...}",
        "comments at the head of the graph",
    ),
    Difference(
        "fragments named like operations of the standard",
        "fragment silu(input: tensor<scalar>) -> (...) {...}",
        "the operation of that name, for the document",
    ),
    Difference(
        "attributes without keyword", "y = leaky_relu(x, 0.1);", "in declared order"
    ),
    Difference(
        "keywords that are no parameter",
        "y = sigmoid(x, axes = [1]);",
        "ignored, with a warning",
    ),
    Difference(
        "one value in the place of an array", "y = softmax(x, 1);", "an array of one"
    ),
    Difference(
        "arrays in the place of tuples",
        "y = pad(x, padding = [[0, 0], [1, 1]]);",
        "tuples",
    ),
    Difference(
        "integers in the place of scalars", "y = add(x, 2);", "scalars of that value"
    ),
    Difference(
        "literals in the place of tensors",
        "y = unsqueeze(0.5, axes = [0]);",
        "a constant; operations on known values are computed",
    ),
    Difference(
        "a name that is assigned twice",
        "y = relu(x); y = neg(y);",
        "the last value has the name",
    ),
    Difference(
        "variables as attributes",
        "y = layer_norm(x, mean_axes = [1], eps = epsilon);",
        "the numbers in the data of the model",
    ),
    Difference(
        "variables of one number in double precision",
        "c = variable<scalar>(label = 'c', shape = []);",
        "the number: torch-to-nnef writes those of Python so",
    ),
    Difference(
        "axes that are counted from the end",
        "y = sum_reduce(x, axes = [-1]);",
        "as torch-to-nnef means them; tract stops",
    ),
    Difference(
        "variables of integers and truth values",
        "i = variable<scalar>(label = 'i', shape = [3]);",
        "constants, of the type that their data have",
    ),
    Difference(
        "integers in arithmetic",
        "y = div(i, j);",
        "cast to scalars, and the result back; a quotient is truncated",
    ),
    Difference(
        "infinity",
        "y = select(m, x, -inf);",
        "the largest number of single precision",
    ),
)

# What operations of the standard compute in tract, where that is something else.
OPERATIONS = {
    "conv": "A bias may have any axes of extent 1, or the channels alone.",
    "deconv": "The filter is [out, in / groups, ...]: the standard's, with the first two axes exchanged.",
    "linear": "Operands of any rank; a bias of one row.",
    "max_pool": "The border `constant` is what `ignore` is: a maximum over what is there.",
    "max_pool_with_index": "As for max_pool.",
    "pad": "The border `replicated` is `replicate`.",
    "slice": "From 0 to 0 there is nothing, written or computed; from elsewhere to 0 is to the end.",
    "unsqueeze": "An axis that is named twice is two.",
    "variable": "Its data type is that of its data.",
}
