"""Random documents: from the grammar, from the declarations of the operations, by mutation
of the documents of the tests, and of excessive size or depth.

An input is a function of its seed, so that a number identifies it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from random import Random
from typing import Any

from lark import Lark
from lark.grammar import Rule, Symbol

from nnef_grad.language.library import standard
from nnef_grad.language.parser import grammar_path
from nnef_grad.language.syntax import Parameter
from nnef_grad.language.types import ArrayType, Primitive, TensorType, TupleType, Type

ROOT = Path(__file__).parents[1]
MAX_BYTES = 500_000


@dataclass(frozen=True)
class Input:
    """The bytes of a file, the options to compile them with, and their origin."""

    data: bytes
    options: dict[str, Any] = field(default_factory=dict)
    kind: str = "file"


def make_input(seed: str, kinds: Sequence[str] | None = None) -> Input:
    """The input of a seed, of one of the given kinds."""
    rng = Random(seed)
    names = list(kinds or KINDS)
    kind = rng.choices(names, [KINDS[name][0] for name in names])[0]
    made = KINDS[kind][1](rng)
    data = made if isinstance(made, bytes) else made.encode("utf-8", "surrogatepass")
    return Input(data[:MAX_BYTES], _options(rng), kind)


# ---- Odd words ----

NAMES = ["x", "w", "v", "y", "h", "grad_y", "x_1", "_", "A" * 300, "true_", "relu", "f"]
USUAL_NUMBERS = ["0", "1", "2", "0.0", "1.0", "0.5"]
NUMBERS = [
    *["0", "1", "2", "3", "4", "0.0", "1.0", "0.5", "2.0", "1e-3", "1.", "007", "1e+2"],
    *["2147483647", "2147483648", "2147483649", "4294967296", "9" * 30, "9" * 5000],
    *["0" * 5000, "1e400", "1e-400", "1e308", "1." + "3" * 5000, "1e99999999999"],
]
USUAL_STRINGS = ["'constant'", "'ignore'", "'symmetric'"]
STRINGS = [
    *["'a'", '"b"', "''", "'constant'", "'ignore'", "'symmetric'", "'a\\'b'", "'#'"],
    *["'" + "s" * 10000 + "'", "'\\\\'", "'\\\r'", "'\u2028\u202e'", "'\x7f\x85'"],
    *["'/'", "'../../x'", "'\U0001f600'", '"it\'s"', "'%s{}'", "'[31m'", "'\ufeff'"],
]
DTYPES = ["<scalar>", "<integer>", "<logical>", "<string>", "<?>", "< scalar\n>"]
PLAIN = [" "]
NOISE = [*[" "] * 8, "\n", "\t", "  # c\n", "\r\n", "\f", "\v"]
TOO_LITTLE = [*[" "] * 30, "", "\xa0"]
ODD = ["\0", "\x01", "\x1b", "\x7f", "\x85", "\xa0", "\ufeff", "\u2028", "\ud800", "é"]


# ---- From the grammar ----


@lru_cache(maxsize=1)
def grammar() -> Grammar:
    """The grammar of the language, ready for expansion."""
    return Grammar()


class Grammar:
    """The rules by the symbol that they expand, with the least height of their trees."""

    START = ("document", "library", "expression", "body", "fragment")

    def __init__(self) -> None:
        text = grammar_path().read_text("utf-8")
        parser = Lark(text, parser="lalr", lexer="basic", start=list(self.START))
        self.rules: dict[str, list[Rule]] = {}
        for rule in parser.rules:
            self.rules.setdefault(rule.origin.name, []).append(rule)
        self.literals = {
            t.name: [t.pattern.value]
            for t in parser.terminals
            if t.pattern.type == "str"
        }
        self.literals |= _WORDS
        self.height = dict.fromkeys(self.rules, 10**6)
        self._measure()

    def _measure(self) -> None:
        """The least heights: a tree is one higher than the highest of its children."""
        before = None
        while before != self.height:
            before = dict(self.height)
            for name, rules in self.rules.items():
                self.height[name] = min(map(self.least, rules))

    def least(self, rule: Rule) -> int:
        """The least height of a tree that begins with a rule."""
        return 1 + max((self.height.get(s.name, 0) for s in rule.expansion), default=0)

    def expand(self, start: str, rng: Random, scope: Scope, size: int = 80) -> str:
        """A random sentence: `size` words or so, then the shortest way to the end."""
        words: list[str] = []
        pending: list[tuple[Symbol, str]] = [(_Start(start), start)]
        while pending:
            symbol, parent = pending.pop()
            if symbol.name not in self.rules:
                words.append(self._word(symbol.name, parent, rng, scope))
                continue
            rule = self._choose(symbol.name, rng, len(words) < size)
            label = rule.alias or rule.origin.name
            pending += [(s, label) for s in reversed(rule.expansion)]
        spaces = rng.choice([PLAIN, PLAIN, NOISE, TOO_LITTLE])
        return "".join(word + rng.choice(spaces) for word in words)

    def _choose(self, name: str, rng: Random, wide: bool) -> Rule:
        rules = self.rules[name]
        if not wide:
            return min(rules, key=self.least)
        return rng.choices(rules, self._weights(name))[0]

    @cache  # noqa: B019
    def _weights(self, name: str) -> list[float]:
        """Weights that make branching rules rare, so that sentences end, and that do not
        favour rules with several alternatives.
        """
        rules = self.rules[name]
        ways = Counter(rule.alias for rule in rules if len(rule.expansion) > 1)
        return [self._weight(rule) / ways.get(rule.alias, 1) for rule in rules]

    def _weight(self, rule: Rule) -> float:
        if len(rule.expansion) == 1:
            return 2.0
        return 0.4 ** sum(symbol.name in self.rules for symbol in rule.expansion)

    def _word(self, terminal: str, parent: str, rng: Random, scope: Scope) -> str:
        if terminal == "NAME":
            return scope.name(rng, parent)
        usual = _USUAL.get(terminal)
        if usual and rng.random() < 0.95:
            return rng.choice(usual)
        return rng.choice(self.literals[terminal])


class _Start(Symbol):  # type: ignore[type-arg, unused-ignore]
    """The start of an expansion."""

    def __init__(self, name: str) -> None:
        super().__init__(name)


_WORDS = {
    "NUMBER": NUMBERS,
    "STRING": STRINGS,
    "DTYPE": DTYPES,
    "PRIMITIVE": ["integer", "scalar", "logical", "string"],
    "BUILTIN": ["shape_of", "length_of", "range_of"],
    "COMPARE": ["<=", ">=", "==", "!="],
    "TIMES": ["*", "/"],
}

_USUAL = {"NUMBER": USUAL_NUMBERS, "STRING": USUAL_STRINGS}


class Scope:
    """The tensors that a document has so far, with their data types."""

    def __init__(self) -> None:
        self.tensors = {
            "x": "scalar", "w": "scalar", "row": "scalar", "one": "scalar",
            "filter": "scalar", "bias": "scalar", "mask": "logical",
            "index": "integer",
        }  # fmt: skip
        self.calls: list[tuple[str, str]] = []

    def name(self, rng: Random, parent: str) -> str:
        """A name that is likely in its place, rarely another one."""
        if rng.random() < 0.1:
            return rng.choice(NAMES)
        if parent == "invocation":
            return rng.choice(operations())
        if parent == "extension":
            return rng.choice(_EXTENSIONS)
        if parent == "keyword":
            return rng.choice(
                ["axes", "shape", "axis", "size", "value", "x", "padding"]
            )
        return rng.choice(list(self.tensors))

    def tensor(self, rng: Random, dtype: str | None) -> str:
        """A tensor, nearly always of a data type, and often of the usual shape."""
        if dtype == "scalar" and rng.random() < 0.4:
            return rng.choice(["x", "w"])
        known = [n for n, d in self.tensors.items() if dtype in (None, "?", d)]
        return rng.choice(known if known and rng.random() < 0.98 else NAMES)

    def last(self) -> str:
        """The tensor to return, which has a gradient."""
        return [n for n, dtype in self.tensors.items() if dtype == "scalar"][-1]


_EXTENSIONS = ["KHR_enable_fragment_definitions", "KHR_enable_operator_expressions"]


@lru_cache(maxsize=1)
def operations() -> list[str]:
    """The standard operations that compute something."""
    return [n for n in standard() if n not in ("external", "variable", "update")]


def from_grammar(rng: Random) -> str:
    """A sentence of the grammar; most are not valid documents."""
    return grammar().expand(rng.choice(["document", "library"]), rng, Scope(), 300)


# ---- From the declarations ----

HEAD = "version 1.0;\n" + "".join(f"extension {name};\n" for name in _EXTENSIONS)
TENSORS = """    x = external(shape = [2, 4, 4, 4]);
    w = variable(shape = [2, 4, 4, 4], label = 'w');
    row = variable(shape = [1, 4], label = 'row');
    one = constant(shape = [], value = [2.0]);
    filter = variable(shape = [4, 4, 3, 3], label = 'filter');
    bias = variable(shape = [1, 4], label = 'bias');
    mask = gt(x, 0.0);
    index = argmax_reduce(x, axes = [1]);
"""


def network(rng: Random) -> str:
    """A graph of operations with arguments of the declared types, for the most part."""
    scope = Scope()
    fragments = [_fragment(rng, scope, i) for i in range(rng.choice([0, 0, 0, 1, 2]))]
    body = _body(rng, scope, rng.randint(1, 6))
    result = scope.last()
    graph = f"graph net( x ) -> ( {result} )\n{{\n{TENSORS}{body}}}\n"
    return HEAD + "".join(fragments) + graph


def _body(rng: Random, scope: Scope, count: int) -> str:
    return "".join(f"    {_statement(rng, scope, i)};\n" for i in range(count))


def _fragment(rng: Random, outer: Scope, number: int) -> str:
    """A fragment that takes all tensors, so that it is easy to call."""
    inner = Scope()
    parameters = ", ".join(f"{n}: tensor<{d}>" for n, d in inner.tensors.items())
    call = f"f{number}({', '.join(inner.tensors)})"
    body = _body(rng, inner, rng.randint(1, 3))
    result, dtype = list(inner.tensors.items())[-1]
    outer.calls.append((call, dtype))
    signature = f"f{number}( {parameters} ) -> ( {result}: tensor<{dtype}> )"
    return f"fragment {signature}\n{{\n{body}}}\n"


def _statement(rng: Random, scope: Scope, number: int) -> str:
    """An invocation, an operator expression, or any expression at all."""
    if scope.calls and rng.random() < 0.3:
        call, scope.tensors[f"y{number}"] = rng.choice(scope.calls)
        return f"y{number} = {call}"
    make = rng.choices([_call, _operator, _anything], [12, 4, 0.5])[0]
    return make(rng, scope, f"y{number}")


def _anything(rng: Random, scope: Scope, target: str) -> str:
    text = grammar().expand("expression", rng, scope, 30)
    scope.tensors[target] = "scalar"
    return f"{target} = {text}"


_COMPARISONS = ("<", ">", "==", "!=", "<=", ">=")


def _operator(rng: Random, scope: Scope, target: str) -> str:
    left = scope.tensor(rng, "scalar")
    right = rng.choice([scope.tensor(rng, "scalar"), "0.5", "2.0", "-1.0"])
    symbol = rng.choice(["+", "-", "*", "/", "^", *_COMPARISONS])
    scope.tensors[target] = "logical" if symbol in _COMPARISONS else "scalar"
    return f"{target} = {left} {symbol} {right}"


def _call(rng: Random, scope: Scope, target: str) -> str:
    fragment = standard()[rng.choice(operations())]
    parameters = [
        p for p in fragment.parameters if p.default is None or rng.random() < 0.3
    ]
    arguments = ", ".join(_argument(rng, scope, p) for p in parameters)
    names = [f"{target}{'abc'[i]}" for i in range(len(fragment.results))]
    for name, result in zip(names, fragment.results, strict=True):
        scope.tensors[name] = getattr(result.type, "dtype", None) or "scalar"
        if scope.tensors[name] == "?":
            scope.tensors[name] = "scalar"
    targets = ", ".join(
        _target(rng, n, r.type) for n, r in zip(names, fragment.results, strict=True)
    )
    return f"{targets} = {fragment.name}({arguments})"


def _target(rng: Random, name: str, type_: Type) -> str:
    items = [name, *(f"{name}{i}" for i in range(rng.choice([0, 1, 1, 1, 3])))]
    return f"[{', '.join(items)}]" if isinstance(type_, ArrayType) else name


def _argument(rng: Random, scope: Scope, parameter: Parameter) -> str:
    tensor = isinstance(parameter.type, TensorType)
    hints = None if tensor and rng.random() < 0.5 else _HINTS.get(parameter.name)
    text = (
        rng.choice(hints)
        if hints and rng.random() < 0.9
        else _value(rng, scope, parameter.type)
    )
    return text if tensor else f"{parameter.name} = {text}"


_HINTS = {
    "axes": ["[1]", "[0]", "[0, 1]", "[2, 3]", "[]", "[0, 0]", "[3, 2, 1, 0]", "[-1]"],
    "axis": ["0", "1", "2", "3", "4", "-1"],
    "shape": ["[2, 64]", "[-1]", "[0, -1]", "[2, 4, 4, 4]", "[]", "[2147483647]"],
    "size": [
        "[1, 1, 2, 2]",
        "[1, 1, 3, 3]",
        "[1, 3, 1, 1]",
        "[2, 4, 4, 4]",
        "[1, 1, 1, 1]",
    ],
    "stride": ["[1, 1, 2, 2]", "[2, 2]", "[1, 1]", "[]", "[0, 0]", "[100, 1]"],
    "dilation": ["[1, 1]", "[2, 2]", "[]", "[1, 1, 2, 2]", "[1000000, 1]"],
    "padding": ["[]", "[(1, 1), (1, 1)]", "[(0, 0), (0, 0), (1, 1), (0, 1)]"],
    "border": ["'constant'", "'ignore'", "'replicate'", "'reflect'", "'odd'"],
    "filter": ["filter", "filter", "w"],
    "bias": ["0.0", "0.0", "1.0"],
    "output_shape": ["[]", "[]", "[2, 4, 8, 8]", "[2, 4, 4, 4]"],
    "axis_start": ["0", "0", "1"],
    "axis_count": ["-1", "-1", "1"],
    "normalize": ["true", "false"],
    "factor": ["[2, 2]", "[1, 1]", "[2]", "[1000000, 2]"],
    "ratios": ["[1, 1]", "[1, 3]", "[]", "[0, 1]", "[1, 1, 1, 1]"],
    "repeats": ["[1, 1, 2, 2]", "[2, 1, 1, 1]", "[1]", "[1000000, 1, 1, 1]"],
    "groups": ["1", "2", "4", "0", "-1", "1000000"],
    "begin": ["[0]", "[1]", "[-1]", "[0, 0]", "[100]"],
    "end": ["[0]", "[2]", "[-1]", "[0, 0]", "[100]"],
    "output_size": ["[2, 2]", "[0, 0]"],
    "times": ["1", "3", "0", "-1"],
    "bits": ["8", "0", "31", "1000000000"],
    "epsilon": ["0.001", "0.0", "-1.0"],
}


def _value(rng: Random, scope: Scope, type_: Type) -> str:
    if isinstance(type_, TensorType):
        return scope.tensor(rng, type_.dtype)
    if isinstance(type_, ArrayType):
        count = rng.choice([0, 1, 2, 2, 3, 4])
        return f"[{', '.join(_value(rng, scope, type_.item) for _ in range(count))}]"
    if isinstance(type_, TupleType):
        return f"({', '.join(_value(rng, scope, item) for item in type_.items)})"
    return rng.choice(_VALUES.get(type_.name, NUMBERS)) if _is_usual(rng) else "x"


def _is_usual(rng: Random) -> bool:
    return rng.random() < 0.97


_VALUES = {
    "integer": ["0", "1", "1", "2", "2", "3", "4", "-1", "2147483647", "-2147483648"],
    "scalar": ["0.0", "1.0", "-0.5", "1e30", "0.001", "1e400", "-0.0"],
    "logical": ["true", "false"],
    "string": STRINGS,
    Primitive("?").name: ["1.0", "0.5", "2", "true"],
}


# ---- By mutation ----


@lru_cache(maxsize=1)
def corpus() -> list[str]:
    """The documents of the tests and the samples, and a few more."""
    folders = (ROOT / "tests" / "cases", ROOT / "samples")
    paths = sorted(path for folder in folders for path in folder.rglob("*.nnef"))
    texts = [re.split("# ---- nnef-grad", path.read_text("utf-8"))[0] for path in paths]
    return [*texts, *(network(Random(seed)) for seed in range(40))]


_TOKEN = re.compile(r"\s+|#[^\n]*|'[^'\n]*'|\w+(?:\.\w+)?|.", re.DOTALL)


def mutation(rng: Random) -> bytes:
    """A document of the corpus after some mutations."""
    pieces = _TOKEN.findall(rng.choice(corpus()))
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        rng.choice(_MUTATIONS)(rng, pieces)
    data = "".join(pieces).encode("utf-8", "surrogatepass")
    return _flip(rng, data) if rng.random() < 0.1 else data


def _place(rng: Random, pieces: list[str]) -> int:
    return rng.randrange(len(pieces)) if pieces else 0


def _delete(rng: Random, pieces: list[str]) -> None:
    start = _place(rng, pieces)
    del pieces[start : start + rng.choice([1, 1, 1, 2, 10])]


def _duplicate(rng: Random, pieces: list[str]) -> None:
    start = _place(rng, pieces)
    pieces[start:start] = pieces[start : start + rng.choice([1, 1, 5, 30])]


def _swap(rng: Random, pieces: list[str]) -> None:
    if pieces:
        one, other = _place(rng, pieces), _place(rng, pieces)
        pieces[one], pieces[other] = pieces[other], pieces[one]


def _replace(rng: Random, pieces: list[str]) -> None:
    """Replaces a word by one of the same kind."""
    words = [i for i, piece in enumerate(pieces) if piece[:1].isalnum()]
    if words:
        place = rng.choice(words)
        digits = pieces[place][0].isdigit()
        known = NUMBERS if digits else [*NAMES, *operations(), *pieces]
        pieces[place] = rng.choice(known)


def _insert(rng: Random, pieces: list[str]) -> None:
    words = [*STRINGS, *NUMBERS, *DTYPES, *"()[]{}=,;:+-*/^!<>?#'\"\\"]
    pieces.insert(_place(rng, pieces), rng.choice(words))


def _insert_odd(rng: Random, pieces: list[str]) -> None:
    pieces.insert(_place(rng, pieces), rng.choice(ODD))


def _insert_expression(rng: Random, pieces: list[str]) -> None:
    text = grammar().expand("expression", rng, Scope(), rng.choice([5, 20, 100]))
    pieces[(place := _place(rng, pieces)) : place + 1] = [text]


def _repeat(rng: Random, pieces: list[str]) -> None:
    """Repeats a piece as often as it fits."""
    start = _place(rng, pieces)
    piece = "".join(pieces[start : start + rng.choice([1, 2, 5, 20])]) or "("
    times = min(rng.choice([2, 100, 10000]), MAX_BYTES // 8 // len(piece) + 1)
    pieces[start:start] = [piece * times]


def _splice(rng: Random, pieces: list[str]) -> None:
    """Joins the beginning of one document and the end of another."""
    other = _TOKEN.findall(rng.choice(corpus()))
    pieces[_place(rng, pieces) :] = other[_place(rng, other) :]


def _truncate(rng: Random, pieces: list[str]) -> None:
    del pieces[_place(rng, pieces) :]


_MUTATIONS: list[Callable[[Random, list[str]], None]] = [
    *[_delete, _delete, _duplicate, _duplicate, _swap, _swap, _replace, _replace],
    *[_replace, _insert, _insert_odd, _insert_expression, _repeat, _splice, _truncate],
]


def _flip(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 2, 10]) if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


# ---- Excessive documents ----

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


# ---- Options ----


def _options(rng: Random) -> dict[str, Any]:
    """Random options, mostly none."""
    if rng.random() < 0.6:
        return {}
    names = list(_OPTIONS)
    return {n: _OPTIONS[n](rng) for n in rng.sample(names, rng.choice([1, 1, 2, 3]))}


def _some_names(rng: Random) -> list[str]:
    known = [*NAMES, *Scope().tensors, "y0", "y1", "", "é", "x,w", "weight", "image"]
    return [rng.choice(known) for _ in range(rng.choice([0, 1, 1, 2, 5]))]


def _some_shapes(rng: Random) -> dict[str, list[int]]:
    extents = [1, 2, 2, 3, 4, 4, 0, -1, 2**31, 10**30]
    shape = [rng.choice(extents) for _ in range(rng.choice([0, 2, 4, 4, 4, 9]))]
    return {rng.choice(["x", "image", "w", ""]): shape}


_OPTIONS: dict[str, Callable[[Random], Any]] = {
    "wrt": lambda rng: (
        rng.choice(["all", "inputs", "variables", "x", "odd"])
        if rng.random() < 0.5
        else _some_names(rng)
    ),
    "outputs": _some_names,
    "seed": lambda rng: rng.choice(["ones", "ones", "input", "zeros"]),
    "with_outputs": lambda rng: rng.random() < 0.8,
    "input_shapes": _some_shapes,
    "batch": lambda rng: rng.choice([1, 2, 3, 0, -1, 2**31, 10**30]),
    "lenient": lambda _: True,
}

KINDS: dict[str, tuple[float, Callable[[Random], str | bytes]]] = {
    "grammar": (0.15, from_grammar),
    "network": (0.4, network),
    "mutation": (0.4, mutation),
    "too much": (0.05, too_much),
}
