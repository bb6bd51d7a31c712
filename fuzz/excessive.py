"""Documents of excessive depth, length or volume, and infinite recursion."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from fuzz.documents import HEAD, TENSORS

SIZES = [10, 100, 1000, 5000, 20000, 50000]


def _nested(opening: str, closing: str, core: str = "x") -> Callable[[int], str]:
    return lambda n: opening * n + core + closing * n


EXPRESSIONS: dict[str, Callable[[int], str]] = {
    "parentheses": _nested("(", ")"),
    "brackets": _nested("[", "]"),
    "tuples": _nested("(x, ", ")"),
    "calls": _nested("relu(", ")"),
    "left calls": _nested("add(", ", x)"),
    "right calls": _nested("add(x, ", ")"),
    "minus": _nested("-", ""),
    "not": _nested("!", "", "mask"),
    "plus of a number": _nested("+", "", "1.0"),
    "minus of a number": _nested("-", "", "1.0"),
    "signs of exponents": lambda n: "x ^ " + "-" * n + "2.0",
    "sum": _nested("x + ", ""),
    "power": _nested("x ^ ", "", "1.0"),
    "power of parentheses": _nested("1.0 ^ (", ")", "1.0"),
    "comparisons": _nested("x < ", ""),
    "logical": _nested("mask && ", "", "mask"),
    "conditionals": _nested("x if true else ", ""),
    "other conditionals": _nested("x if false else ", ""),
    "conditions": _nested("x if ", " else x", "true"),
    "comprehensions": _nested("[for i in [1] yield ", "]", "i"),
    "comprehension of comprehension": _nested("[for i in ", " yield i]", "[x]"),
    "subscripts": _nested("[x][", "]", "0"),
    "subscripted": lambda n: "x" + "[0]" * n,
    "ranges": lambda n: "add_n([x, x]" + "[0:]" * n + ")",
    "conversions": _nested("scalar(", ")", "1.0"),
    "shapes": _nested("shape_of(", ")"),
    "list": lambda n: "add_n([" + "x, " * n + "x])",
    "numbers": lambda n: "reshape(x, shape = [" + "1, " * n + "128])",
    "arguments": lambda n: "add(" + "x, " * n + "x)",
    "keywords": lambda n: "add(x, " + "y = x, " * n + "y = x)",
    "string": lambda n: "pad(x, padding = [], border = '" + "s" * n + "')",
    "name": lambda n: "relu(" + "x" * n + ")",
    "operation": lambda n: "relu" * n + "(x)",
    "keyword": lambda n: "relu(" + "x" * n + " = x)",
    "concatenated": lambda n: "concat([" + "x, " * n + "x], axis = 1)",
    "transposed": lambda n: "transpose(x, axes = range_of([0] * " + str(n) + "))",
    "in": _nested("1 in [", "]", "2"),
}
HUGE = ["2000000000", "2147483647", "100000000", "1000000", "2 ^ 30", "2 ^ 2000000000"]
LARGE: dict[str, Callable[[str], str]] = {
    "repeated list": lambda n: f"reshape(x, shape = [0] * {n})",
    "repeated twice": lambda n: f"reshape(x, shape = [0] * {n} * {n})",
    "repeated empty": lambda n: f"reshape(x, shape = [] * {n})",
    "repeated string": lambda n: f"pad(x, padding = [], border = 'a' * {n})",
    "repeated tensor": lambda n: f"add_n([x] * {n})",
    "repeated list of lists": lambda n: f"[[[x]] * 1000] * {n}",
    "repeated argument": lambda n: f"concat([x] * {n}, axis = 1)",
    "copies": lambda n: f"add_n(copy_n(x, times = {n}))",
    "power": lambda n: f"reshape(x, shape = [2 ^ {n}])",
    "power of powers": lambda n: f"reshape(x, shape = [7 ^ 7 ^ 7 ^ 7 ^ {n}])",
    "scalar power": lambda n: f"x * 1e300 ^ scalar({n})",
    "negative power": lambda n: f"x * 0.0 ^ -scalar({n})",
    "comprehension": lambda n: f"add_n([for i in range_of([0] * {n}) yield x])",
    "pairs": lambda n: "[" + f"for i in [for j in [0] * {n} yield [0] * {n}] yield i]",
    "length": lambda n: f"x * scalar(length_of([0] * {n}))",
    "string of a number": lambda n: f"x * scalar('1' * {n})",
    "integer of a string": lambda n: f"x * scalar(integer('9' * {n}))",
    "integer of a number": lambda n: f"x * scalar(integer(1e300 * scalar({n})))",
    "tile": lambda n: f"tile(x, repeats = [{n}, {n}, {n}, {n}])",
    "upsample": lambda n: f"nearest_upsample(x, factor = [{n}, {n}])",
    "multilinear": lambda n: f"multilinear_upsample(x, factor = [{n}, {n}])",
    "padding": lambda n: f"conv(x, filter, padding = [({n}, {n}), ({n}, {n})])",
    "dilation": lambda n: f"conv(x, filter, dilation = [{n}, {n}])",
    "window": lambda n: f"max_pool(x, size = [1, 1, {n}, {n}])",
    "stride": lambda n: f"max_pool(x, size = [1, 1, 1, 1], stride = [{n}, 1, 1, 1])",
    "pad": lambda n: f"pad(x, padding = [({n}, {n}), (0, 0), (0, 0), (0, 0)])",
    "unsqueeze": lambda n: f"unsqueeze(x, axes = range_of([0] * {n}))",
    "unstacked": lambda n: (
        f"add_n(unstack(tile(x, repeats = [{n}, 1, 1, 1]), axis = 0))"
    ),
    "split": lambda n: (
        f"add_n(split(tile(x, repeats = [{n}, 1, 1, 1]), axis = 0, ratios = [1] * {n}))"
    ),
    "bits": lambda n: f"linear_quantize(x, 0.0, 1.0, bits = {n})",
}


def _graph(expression: str, fragments: str = "") -> str:
    body = f"{TENSORS}    y = {expression};\n"
    return f"{HEAD}{fragments}graph net( x ) -> ( y )\n{{\n{body}}}\n"


def _deep(rng: Random) -> str:
    return _graph(EXPRESSIONS[rng.choice(list(EXPRESSIONS))](rng.choice(SIZES)))


def _large(rng: Random) -> str:
    return _graph(LARGE[rng.choice(list(LARGE))](rng.choice(HUGE)))


def _mixed(rng: Random) -> str:
    """Nesting of one kind inside nesting of another, in an expression of the grammar."""
    text = "x"
    for _ in range(rng.randint(2, 5)):
        nest = EXPRESSIONS[rng.choice(list(EXPRESSIONS))]
        text = nest(rng.choice([2, 10, 100])).replace("x", text, 1)[:200_000]
    return _graph(text)


_CALLS = {
    "twice": ("tensor<scalar>", "add({0}(x), {0}(x))", "relu(x)"),
    "inside": ("tensor<scalar>", "{0}({0}(x))", "relu(x)"),
    "chain": ("tensor<scalar>", "{0}(x)", "relu(x)"),
    "twice of a twice": ("tensor<scalar>", "{0}(x + x) + {0}(x * x)", "exp(x)"),
    "list": ("tensor<scalar>[]", "{0}(x) + {0}(x)", "[x]"),
    "list of list": ("tensor<scalar>[]", "{0}(x + x)", "x + x"),
    "nothing": ("integer[]", "{0}(x) + {0}(x)", "[0]"),
    "string": ("string", "{0}(x) + {0}(x)", "'a'"),
    "string down": ("string", "{0}(x + x)", "x"),
    "list down": ("integer[]", "{0}(x + x)", "x"),
    "number": ("integer", "{0}(x) * {0}(x)", "7"),
    "loop": ("integer[]", "[for i in {0}(x) yield {0}(x)[0]]", "[0, 1]"),
}


def _fragments(rng: Random) -> str:
    """A chain of fragments, each of which calls the one before, once or twice."""
    type_, call, core = _CALLS[rng.choice(list(_CALLS))]
    count = rng.choice([3, 10, 20, 30, 64, 1000])
    last = rng.choice([core, core, core, call.format(f"f{count - 1}")])
    bodies = [last, *(call.format(f"f{i}") for i in range(count - 1))]
    items = [
        f"fragment f{i}( x: {type_} ) -> ( y: {type_} ) {{ y = {body}; }}\n"
        for i, body in enumerate(bodies)
    ]
    order = items if rng.random() < 0.8 else items[::-1]
    return _graph(f"f{count - 1}({_STARTS.get(type_, 'x')})", "".join(order))


_STARTS = {
    "tensor<scalar>[]": "[x]",
    "integer[]": "[0]",
    "string": "'a'",
    "integer": "7",
}


def _recursion(rng: Random) -> str:
    body = rng.choice(
        [
            "f(x)",
            "g(x)",
            "f(f(x))",
            "x if false else f(x)",
            "f(relu(x)) if true else x",
            "add(f(x), f(x)) if length_of([0]) > 0 else x",
        ]
    )
    signature = "( x: tensor<scalar> ) -> ( y: tensor<scalar> )"
    one = f"fragment f{signature} {{ y = {body}; }}\n"
    other = f"fragment g{signature} {{ y = f(x); }}\n"
    return _graph("f(x)", one + other)


def _counting(rng: Random) -> str:
    """A fragment that calls itself until a number is reached."""
    body = rng.choice(
        [
            "f(relu(x), n - 1) if n > 0 else x",
            "f(x, n - 1) + f(x, n - 1) if n > 0 else x",
            "x if n == 0 else f(f(x, n - 1), n - 1)",
        ]
    )
    types = "( x: tensor<scalar>, n: integer ) -> ( y: tensor<scalar> )"
    text = f"fragment f{types} {{ y = {body}; }}\n"
    number = rng.choice([5, 20, 60, 990, 20000, 2000000000])
    return _graph(f"f(x, n = {number})", text)


_STATEMENTS: dict[str, Callable[[int, int], str]] = {
    "chain": lambda i, _: f"y{i + 1} = relu(y{i})",
    "doubling": lambda i, _: f"y{i + 1} = y{i} + y{i}",
    "squares": lambda i, _: f"y{i + 1} = y{i} * y{i}",
    "fan": lambda i, n: f"y{i + 1} = x * y0" if i < n - 1 else f"y{i + 1} = copy(y{i})",
    "variables": lambda i, _: f"y{i + 1} = variable(shape = [1], label = 'v{i}')",
    "sum of variables": lambda i, _: (
        f"v{i} = variable(shape = [1], label = '{i}'); y{i + 1} = y{i} + v{i}"
    ),
    "grown": lambda i, _: f"y{i + 1} = concat([y{i}, y{i}], axis = 1)",
    "tiled": lambda i, _: f"y{i + 1} = tile(y{i}, repeats = [2, 2, 2, 2])",
    "padded": lambda i, _: f"y{i + 1} = pad(y{i}, padding = [(9, 9)] * 4)",
    "risen": lambda i, _: f"y{i + 1} = unsqueeze(y{i}, axes = [0])",
    "lists": lambda i, _: f"y{i + 1} = [y{i}, y{i}]",
    "tuples": lambda i, _: f"y{i + 1} = (y{i}, y{i})",
    "long names": lambda i, _: f"{'n' * 900}{i} = relu(x); y{i + 1} = copy(y{i})",
    "the same name": lambda i, _: "y1 = relu(x)",
}


def _many(rng: Random) -> str:
    """Many statements of one kind."""
    make = _STATEMENTS[rng.choice(list(_STATEMENTS))]
    count = rng.choice([10, 30, 60, 300, 2000])
    lines = "".join(f"    {make(i, count)};\n" for i in range(count))
    body = f"{TENSORS}    y0 = relu(x);\n{lines}"
    return f"{HEAD}graph net( x ) -> ( y{count} )\n{{\n{body}}}\n"


_SHAPES: dict[str, Callable[[int], str]] = {
    "rank": lambda n: ", ".join(["1"] * n),
    "volume": lambda n: ", ".join(["2147483647"] * n),
    "twos": lambda n: ", ".join(["2"] * n),
}
_CORES = [
    "relu(x)",
    "softmax(x)",
    "sum_reduce(x, axes = [0])",
    "x + x",
    "reshape(x, shape = [-1])",
]
_CORES += [
    "matmul(x, x)",
    "max_pool(x, size = shape_of(x))",
    "transpose(x, axes = [1, 0])",
]
_CORES += ["stack(unstack(x, axis = 0), axis = 0)", "l2_normalization(x, axes = [0])"]


def _shape(rng: Random) -> str:
    shape = _SHAPES[rng.choice(list(_SHAPES))](rng.choice([1, 8, 40, 1000, 20000]))
    lines = f"    x = external(shape = [{shape}]);\n    y = {rng.choice(_CORES)};\n"
    return f"{HEAD}graph net( x ) -> ( y )\n{{\n{lines}}}\n"


_DECLARATIONS: dict[str, Callable[[int], str]] = {
    "array": lambda n: "scalar" + "[]" * n,
    "tuple": lambda n: "(" * n + "scalar" + ", scalar)" * n,
    "wide": lambda n: "(" + "scalar, " * n + "scalar)",
    "default": lambda n: "scalar[] = " + "[" * n + "]" * n,
    "operators": lambda n: "scalar = " + "-" * n + "1.0",
    "string": lambda n: "string = '" + "\\\\" * n + "'",
}


def _declaration(rng: Random) -> str:
    type_ = _DECLARATIONS[rng.choice(list(_DECLARATIONS))](rng.choice(SIZES))
    given = rng.choice(["", ", a = [[[1.0]]]", ", a = 1.0"])
    types = f"( x: tensor<scalar>, a: {type_} ) -> ( y: tensor<scalar> )"
    return _graph(f"f(x{given})", f"fragment f{types} {{ y = relu(x); }}\n")


_TARGETS = [_nested("[", "]", "y"), _nested("(", ")", "y"), _nested("[y0, ", "]", "y")]


def _target_bomb(rng: Random) -> str:
    target = rng.choice(_TARGETS)(rng.choice(SIZES))
    return _graph("x").replace("    y = ", f"    {target} = ")


def _signature(rng: Random) -> str:
    count = rng.choice([10, 1000, 20000])
    names = ", ".join(f"x{i}" for i in range(count))
    body = "".join(f"x{i} = external(shape = [1]);\n" for i in range(count))
    return f"version 1.0;\ngraph net( {names} ) -> ( y ) {{ {body} y = relu(x0); }}"


_TOO_MUCH: list[tuple[int, Callable[[Random], str]]] = [
    (8, _deep),
    (8, _large),
    (3, _mixed),
    (4, _fragments),
    (1, _recursion),
    (1, _counting),
    (3, _many),
    (2, _shape),
    (2, _declaration),
    (1, _target_bomb),
    (1, _signature),
]


def too_much(rng: Random) -> str:
    """A document that is deep, long, large or infinitely recursive."""
    weights = [weight for weight, _ in _TOO_MUCH]
    return rng.choices(_TOO_MUCH, weights)[0][1](rng)
