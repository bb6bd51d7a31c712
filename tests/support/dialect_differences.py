"""How tract's dialect differs from the standard: rows of docs/tables/tract.csv."""

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
        "the dialect; of `tract_assert`, ranges of one symbol are facts, others become comments",
    ),
    Difference(
        "symbols as extents",
        "extension tract_symbol B;",
        "symbols, unless an operation needs a number or the caller gives one",
    ),
    Difference(
        "extended identifiers",
        'i"layer1/kernel:0" = variable(shape = [3], label = "w");',
        "names of any text, in all places where there are names",
    ),
    Difference(
        "strings of any text",
        '[("author", "陳"), ("text", "it is \\"so\\"")]',
        "the characters between the quotes; a backslash takes the next one",
    ),
    Difference(
        "names in a loop that tract has changed",
        'scan = [("a.b", x, 0, 1)]',
        "as tract does, the parameter `a_b` of the body, if there is no `a.b`",
    ),
    Difference(
        "data types of inputs and results",
        "i = tract_core_external(shape = [3], datum_type = 'i32');",
        "scalars, integers or truth values; what is written for tract has the data types of the"
        " document, with a cast after each input, and before each result",
    ),
    Difference(
        "inputs without elements",
        "p = external(shape = [1, 0, 4]);",
        "nothing, with a warning: `concat` leaves it out",
    ),
    Difference(
        "other extension lines", "extension vendor_thing;", "ignored, with a warning"
    ),
    Difference(
        "fragments and operator expressions without their extension lines",
        "y = 0.5 * x;",
        "as with these lines",
    ),
    Difference(
        "metadata",
        "fragment tract_core_properties() -> (...) {...}",
        "comments at the head of the graph",
    ),
    Difference(
        "fragments named like standard operations",
        "fragment silu(input: tensor<scalar>) -> (...) {...}",
        "the operation of that name, for the document",
    ),
    Difference(
        "attributes without keyword", "y = leaky_relu(x, 0.1);", "in declared order"
    ),
    Difference(
        "unknown keywords",
        "y = sigmoid(x, axes = [1]);",
        "ignored, with a warning",
    ),
    Difference(
        "one value instead of an array", "y = softmax(x, 1);", "an array of one"
    ),
    Difference(
        "arrays instead of tuples",
        "y = pad(x, padding = [[0, 0], [1, 1]]);",
        "tuples",
    ),
    Difference(
        "integers instead of scalars", "y = add(x, 2);", "scalars of that value"
    ),
    Difference(
        "literals instead of tensors",
        "y = unsqueeze(0.5, axes = [0]);",
        "a constant; operations on known values are computed",
    ),
    Difference(
        "NaN",
        "n = NaN;",
        "a square root, as NNEF has no literal for it; tract writes it, and does not read it",
    ),
    Difference(
        "a name assigned twice",
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
        "the number: torch-to-nnef writes Python's numbers this way",
    ),
    Difference(
        "negative axes",
        "y = sum_reduce(x, axes = [-1]);",
        "counted from the end, as torch-to-nnef means them; tract fails",
    ),
    Difference(
        "variables of integers and truth values",
        "i = variable<scalar>(label = 'i', shape = [3]);",
        "constants of the data's type, or variables if they are large; also integers that"
        " tract stores as codes of a quantization, where `graph.quant` has no entry",
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
    "conv": "A bias may have any axes of extent 1, or only the channels.",
    "deconv": "The filter is [out, in / groups, ...]: the standard's, with the first two axes exchanged.",
    "linear": "Operands of any rank; a bias of one row.",
    "max_pool": "The border `constant` means `ignore`.",
    "max_pool_with_index": "As for max_pool.",
    "pad": "The border `replicated` means `replicate`.",
    "slice": "From 0 to 0 is empty, written or computed; from elsewhere to 0 is to the end.",
    "unsqueeze": "An axis named twice is inserted twice.",
    "variable": "It has the type of its data.",
}
