"""Documents with much of one thing: items, uses, errors, terms, letters, fragments.

What takes time or memory that grows faster than such a document is beyond its budget
long before the document is large.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from fuzz.inputs import Input
from fuzz.options import library_options

MOST_BYTES = 1_000_000
NUMBERS = [1000, 5000, 20_000, 50_000, 200_000]
# Large ones take a minute, and find little that smaller ones do not.
WEIGHTS = [6, 6, 5, 1, 0.2]
# The numbers for what stands for much more than its text.
FEW = [1000, 20_000, 1_000_000, 50_000_000]

Make = Callable[[int], str]

HEAD = """version 1.0;
extension KHR_enable_fragment_definitions;
extension KHR_enable_operator_expressions;
"""
INPUT = "x = external(shape = [2, 3]);\n"


def _each(count: int, line: str, separator: str = "\n") -> str:
    """A line for each number; `{i}` is the number, `{j}` the next one."""
    return separator.join(line.format(i=i, j=i + 1) for i in range(count))


def _graph(
    body: str, fragments: str = "", inputs: str = "x", outputs: str = "y"
) -> str:
    return f"{HEAD}{fragments}graph g( {inputs} ) -> ( {outputs} )\n{{\n{body}\n}}\n"


def _lines(line: str, last: str = "y = relu(x);") -> Make:
    """A statement for each number, after the input and a first tensor `y0`."""
    first = f"{INPUT}y0 = relu(x);\n"
    return lambda n: _graph(f"{first}{_each(n, line)}\n{last.format(n=n)}")


def _expression(make: Make) -> Make:
    return lambda n: _graph(f"{INPUT}y = {make(n)};")


def _nested(opening: str, closing: str, core: str = "x") -> Make:
    return _expression(lambda n: opening * n + core + closing * n)


def _literal_shape(n: int) -> str:
    return _graph(f"x = external(shape = [{_each(n, '1', ', ')}]);\ny = relu(x);")


def _values(item: str) -> Make:
    return lambda n: _graph(
        f"{INPUT}c = constant(shape = [1, {n}], value = [{_each(n, item, ', ')}]);\n"
        "y = x * sum_reduce(c, axes = [1]);"
    )


ITEMS: dict[str, Make] = {
    "a shape of literals": _literal_shape,
    "values": _values("0.5"),
    "different values": _values("{i}.5"),
    "a list of tensors": _expression(lambda n: f"add_n([{_each(n, 'x', ', ')}])"),
    "a concatenation": _expression(
        lambda n: f"concat([{_each(n, 'x', ', ')}], axis = 1)"
    ),
    "a stack": _expression(lambda n: f"stack([{_each(n, 'x', ', ')}], axis = 1)"),
    "axes": _expression(
        lambda n: f"sum_reduce(x, axes = [{_each(n, '{i}', ', ')}])"
    ),
    "ones of a reshape": _expression(
        lambda n: f"reshape(x, shape = [6, {_each(n, '1', ', ')}])"
    ),
    "pairs of padding": _expression(
        lambda n: f"pad(x, padding = [{_each(n, '(0, 0)', ', ')}])"
    ),
    "ratios": lambda n: _graph(
        f"x = external(shape = [{n}]);\n"
        f"[{_each(n, 's{i}', ', ')}] = "
        f"split(x, axis = 0, ratios = [{_each(n, '1', ', ')}]);\ny = s0 * s1;"
    ),
    "results": lambda n: _graph(
        f"x = external(shape = [{n}, 2]);\n"
        f"[{_each(n, 's{i}', ', ')}] = unstack(x, axis = 0);\ny = s0 * s1;"
    ),
    "copies": lambda n: _graph(
        f"{INPUT}[{_each(n, 's{i}', ', ')}] = copy_n(x, times = {n});\n"
        f"y = add_n([{_each(n, 's{i}', ', ')}]);"
    ),
}  # fmt: skip
USES: dict[str, Make] = {
    "operations on one tensor": _lines("z{i} = relu(x);"),
    "products of one tensor": _lines("y{j} = y{i} * x;", "y = copy(y{n});"),
    "a chain": _lines("y{j} = relu(y{i});", "y = copy(y{n});"),
    "a chain of sums": _lines("y{j} = y{i} + y0;", "y = copy(y{n});"),
    "different uses of one tensor": lambda n: _graph(
        f"{INPUT}{_each(n, 'z{i} = x * {i}.5;')}\ny = add_n([{_each(n, 'z{i}', ', ')}]);"
    ),
    "copies of one tensor": _lines("y{j} = copy(y{i});", "y = copy(y{n});"),
    "selections": _lines("y{j} = select(y{i} > x, y{i}, x);", "y = copy(y{n});"),
    "slices of one tensor": lambda n: _graph(
        f"x = external(shape = [{n}, 2]);\n"
        f"{_each(n, 'z{i} = slice(x, axes = [0], begin = [{i}], end = [{j}]);')}\n"
        f"y = concat([{_each(n, 'z{i}', ', ')}], axis = 0);"
    ),
}
ERRORS: dict[str, Make] = {
    "unknown operations": _lines("z{i} = nothing{i}(x);"),
    "one unknown operation": _lines("z{i} = rellu(x);"),
    "undefined names": _lines("z{i} = relu(u{i});"),
    "undefined names near others": _lines("z{i} = relu(z{j}z);"),
    "names twice": _lines("y0 = relu(x);"),
    "missing arguments": _lines("z{i} = add(x);"),
    "unknown keywords": _lines("z{i} = relu(x, k{i} = 1.0);"),
    "wrong types": _lines("z{i} = relu('a');"),
    "wrong shapes": _lines("z{i} = reshape(x, shape = [{j}, 7]);"),
    "shapes that differ": _lines("z{i} = matmul(x, x);"),
    "syntax errors": _lines("z{i} = relu(x;"),
    "odd characters": _lines("z{i} = relu(x) $;"),
    "unclosed strings": _lines("z{i} = relu('x);"),
    "unknown extensions": lambda n: "version 1.0;\n" + _each(n, "extension e{i};"),
    "missing outputs": lambda n: _graph(
        f"{INPUT}y = relu(x);", outputs=_each(n, "u{i}", ", ")
    ),
    "missing inputs": lambda n: _graph(
        f"{INPUT}y = relu(x);", inputs=_each(n, "u{i}", ", ")
    ),
    "misspelt in a fragment": lambda n: _graph(
        f"{INPUT}y = relu(x);", _each(n, _FRAGMENT.replace("relu", "u{i}"))
    ),
    "fragments twice": lambda n: _graph(
        f"{INPUT}y = relu(x);", _each(n, _FRAGMENT.replace("f{i}", "f"))
    ),
}
DEPTHS: dict[str, Make] = {
    "minus": _nested("-", ""),
    "not": _expression(lambda n: f"select({'!' * n}(x > 0.0), x, x)"),
    "signs of a number": _expression(lambda n: f"x * {'-' * n}1.0"),
    "calls": _nested("relu(", ")"),
    "parentheses": _nested("(", ")"),
    "brackets": _nested("[", "]"),
    "a sum": _nested("x + ", ""),
    "a sum of numbers": _nested("1.0 + ", ""),
    "a sum of products": _nested("x * x + ", ""),
    "a product of signs": _nested("-x * ", ""),
    "a right sum": _nested("(x + ", ")"),
    "a left sum": _nested("(", " + x)"),
    "powers": _nested("x ^ ", "", "2.0"),
    "a logical": _expression(
        lambda n: f"select({_each(n, 'x > 0.0', ' && ')}, x, x)"
    ),
    "conditionals": _nested("x if true else ", ""),
    "subscripts": _expression(lambda n: "[x]" + "[0:]" * n + "[0]"),
    "joined lists": _expression(lambda n: f"add_n({_each(n, '[x]', ' + ')})"),
    "joined strings": _expression(
        lambda n: f"pad(x, padding = [], border = {_each(n, QUOTED, ' + ')})"
    ),
    "targets": lambda n: _graph(f"{INPUT}{'[' * n}y{']' * n} = relu(x);"),
    "types": lambda n: _graph(
        f"{INPUT}y = relu(x);",
        f"fragment f( x: scalar{'[]' * n} ) -> ( y: tensor<scalar> ) {{ y = 1.0; }}\n",
    ),
}  # fmt: skip
QUOTED = "'a'"
LETTERS: dict[str, Make] = {
    "a name": lambda n: _graph(f"{INPUT}{'n' * n} = relu(x);\ny = relu({'n' * n});"),
    "an undefined name": _expression(lambda n: f"relu({'n' * n})"),
    "an operation": _expression(lambda n: f"{'n' * n}(x)"),
    "a comment": lambda n: f"{'#' * n}\n" + _graph(f"{INPUT}y = relu(x);"),
    "comments": _lines("# comment {i}"),
    "comments within a line": _expression(
        lambda n: f"relu(x {_each(n, '# c{i}')}\n)"
    ),
    "blanks": lambda n: _graph(f"{INPUT}{' ' * n}y = relu(x);"),
    "lines": lambda n: _graph(f"{INPUT}{chr(10) * n}y = relu(x);"),
    "lines of errors": lambda n: _graph(f"{INPUT}{chr(10) * n}y = relu(z);"),
    "a string": _expression(
        lambda n: f"pad(x, padding = [(0, 0), (0, 0)], border = '{'s' * n}')"
    ),
    "a label": lambda n: _graph(
        f"{INPUT}v = variable(shape = [1, 3], label = '{'l' * n}');\ny = x * v;"
    ),
    "steps of a label": lambda n: _graph(
        f"{INPUT}v = variable(shape = [1, 3], label = '{'l/' * n}l');\ny = x * v;"
    ),
    "escapes": _expression(
        lambda n: f"pad(x, padding = [], border = '{'~~' * n}')".replace("~", "\\")
    ),
    "digits": _expression(lambda n: f"x * {'9' * n}.0"),
    "decimals": _expression(lambda n: f"x * 0.{'3' * n}"),
    "an exponent": _expression(lambda n: f"x * 1e-{'9' * n}"),
    "an integer": _expression(lambda n: f"reshape(x, shape = [{'9' * n}])"),
    "one line": lambda n: _graph(INPUT + _each(n, "z{i} = relu(x);", " ") + "y = relu(z0);"),
    "an error at the end of a line": lambda n: _graph(
        INPUT + _each(n, "z{i} = relu(x);", " ") + "y = relu(u);"
    ),
}  # fmt: skip

_FRAGMENT = (
    "fragment f{i}( x: tensor<scalar> ) -> ( y: tensor<scalar> ) {{ y = relu(x); }}"
)
_CALLER = _FRAGMENT.replace("f{i}", "f{j}").replace("relu", "f{i}")


def _fragment(line: str, last: str) -> Make:
    """A fragment with a long body."""
    signature = "fragment f( x: tensor<scalar> ) -> ( y: tensor<scalar> )"

    def make(n: int) -> str:
        body = f"y0 = relu(x);\n{_each(n, line)}\n{last.format(n=n)}"
        return _graph(f"{INPUT}y = f(x);", f"{signature}\n{{\n{body}\n}}\n")

    return make


def _parameters(n: int) -> str:
    types = _each(n, "p{i}: tensor<scalar>", ", ")
    fragment = f"fragment f( {types} ) -> ( y: tensor<scalar> ) {{ y = relu(p0); }}\n"
    return _graph(f"{INPUT}y = f({_each(n, 'x', ', ')});", fragment)


def _keywords(n: int) -> str:
    types = _each(n, "p{i}: scalar = 1.0", ", ")
    types = f"x: tensor<scalar>, {types}"
    fragment = f"fragment f( {types} ) -> ( y: tensor<scalar> ) {{ y = x * p0; }}\n"
    return _graph(f"{INPUT}y = f(x, {_each(n, 'p{i} = 2.0', ', ')});", fragment)


def _results(n: int) -> str:
    types = _each(n, "r{i}: tensor<scalar>", ", ")
    body = _each(n, "r{i} = relu(x);")
    fragment = f"fragment f( x: tensor<scalar> ) -> ( {types} ) {{ {body} }}\n"
    return _graph(f"{INPUT}{_each(n, 'y{i}', ', ')} = f(x); y = relu(y0);", fragment)


FRAGMENTS: dict[str, Make] = {
    "unused": lambda n: _graph(f"{INPUT}y = relu(x);", _each(n, _FRAGMENT) + "\n"),
    "each used": lambda n: _graph(
        f"{INPUT}{_each(n, 'z{i} = f{i}(x);')}\ny = relu(z0);", _each(n, _FRAGMENT)
    ),
    "each calls the one before": lambda n: _graph(
        f"{INPUT}y = f{n}(x);", f"{_FRAGMENT.format(i=0)}\n{_each(n, _CALLER)}"
    ),
    "one used often": lambda n: _graph(
        f"{INPUT}{_each(n, 'z{i} = f0(x);')}\ny = relu(z0);", _FRAGMENT.format(i=0)
    ),
    "one used in a chain": lambda n: _graph(
        f"{INPUT}y0 = relu(x);\n{_each(n, 'y{j} = f0(y{i});')}\ny = copy(y{n});",
        _FRAGMENT.format(i=0),
    ),
    "a long body": _fragment("y{j} = relu(y{i});", "y = copy(y{n});"),
    "a body of errors": _fragment("z{i} = reshape(x, shape = [{j}, 7]);", "y = relu(x);"),
    "parameters": _parameters,
    "keywords": _keywords,
    "results": _results,
}  # fmt: skip
SIGNATURES: dict[str, Make] = {
    "inputs": lambda n: _graph(
        f"{_each(n, 'x{i} = external(shape = [2]);')}\ny = x0 * x0;",
        inputs=_each(n, "x{i}", ", "),
    ),
    "used inputs": lambda n: _graph(
        f"{_each(n, 'x{i} = external(shape = [2]);')}\n"
        f"y = add_n([{_each(n, 'x{i}', ', ')}]);",
        inputs=_each(n, "x{i}", ", "),
    ),
    "inputs that are one": lambda n: _graph(
        f"{INPUT}y = relu(x);", inputs=_each(n, "x", ", ")
    ),
    "outputs": lambda n: _graph(
        f"{INPUT}{_each(n, 'z{i} = relu(x);')}", outputs=_each(n, "z{i}", ", ")
    ),
    "outputs that are one": lambda n: _graph(
        f"{INPUT}y = relu(x);", outputs=_each(n, "y", ", ")
    ),
    "variables": _lines("v{i} = variable(shape = [1], label = 'v{i}');"),
    "used variables": _lines(
        "v{i} = variable(shape = [1, 3], label = 'v{i}'); y{j} = y{i} * v{i};",
        "y = copy(y{n});",
    ),
    "labels that are one": _lines("v{i} = variable(shape = [1], label = 'v');"),
    "labels in labels": lambda n: _graph(
        f"{INPUT}{_each(min(n, 2000), _STEPS)}\ny = relu(x);"
    ),
}
_STEPS = "v{i} = variable(shape = [1], label = 'a/b/c/{i}/d');"

# Short documents that stand for long lists.
REPEATED: dict[str, Make] = {
    "a shape": lambda n: _graph(f"x = external(shape = [1] * {n});\ny = relu(x);"),
    "values": lambda n: _graph(
        f"{INPUT}c = constant(shape = [1, {n}], value = [0.5] * {n});\n"
        "y = x * sum_reduce(c, axes = [1]);"
    ),
    "one value": lambda n: _graph(
        f"c = constant(shape = [{n}], value = [0.5]);\n{INPUT}"
        f"y = x * sum_reduce(c, axes = [0]);"
    ),
    "tensors": _expression(lambda n: f"add_n([x] * {n})"),
    "a concatenation": _expression(lambda n: f"concat([x] * {n}, axis = 0)"),
    "a reshape": _expression(lambda n: f"reshape(x, shape = [6] + [1] * {n})"),
    "copies": lambda n: _graph(f"{INPUT}[y, z] = copy_n(x, times = {n});"),
    "a comprehension": _expression(
        lambda n: f"add_n([for i in range_of([0] * {n}) yield x * scalar(i)])"
    ),
    "a string": _expression(lambda n: f"pad(x, padding = [], border = 'a' * {n})"),
    "unsqueezed": _expression(lambda n: f"unsqueeze(x, axes = range_of([0] * {n}))"),
    "tiled": _expression(lambda n: f"tile(x, repeats = [{n}, 1])"),
    "unstacked": lambda n: _graph(
        f"x = external(shape = [{n}, 2]);\n[y, z] = unstack(x, axis = 0);"
    ),
}

TABLES = (ITEMS, USES, ERRORS, DEPTHS, LETTERS, FRAGMENTS, SIGNATURES)
LONG: list[Make] = [make for table in TABLES for make in table.values()]
SHORT: list[Make] = list(REPEATED.values())


def much_of_one(rng: Random) -> Input:
    """A document with much of one thing, with options if it is not long."""
    if rng.random() < len(SHORT) / len(LONG):
        document = rng.choice(SHORT)(rng.choice(FEW))
    else:
        document = _fitting(rng.choice(LONG), rng.choices(NUMBERS, WEIGHTS)[0])
    return Input(document.encode(), library_options(rng))


def _fitting(make: Make, number: int) -> str:
    """A document with as many things, or half as many until it is not too long."""
    while len(document := make(number)) > MOST_BYTES:
        number //= 2
    return document
