"""Random documents: from the grammar, from the declarations of the operations, and by
mutation of the documents of the tests.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from random import Random

from lark import Lark
from lark.grammar import Rule, Symbol

from nnef_grad.language.lalr import grammar_path
from nnef_grad.language.library import STDLIB
from nnef_grad.language.syntax import Parameter
from nnef_grad.language.types import ArrayType, Primitive, TensorType, TupleType, Type

ROOT = Path(__file__).parents[1]
MAX_BYTES = 500_000


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
    "LITERALS": [
        "[1, 2]",
        "[0.5, 1.0, 2.0]",
        "[1, 2.0]",
        "[ -1 ,\n-2e0 ]",
        "[2147483648, 1]",
    ],
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
    return [n for n in STDLIB if n not in ("external", "variable", "update")]


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
    fragment = STDLIB[rng.choice(operations())]
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
    return rng.choice(_VALUES.get(type_.dtype, NUMBERS)) if _is_usual(rng) else "x"


def _is_usual(rng: Random) -> bool:
    return rng.random() < 0.97


_VALUES = {
    "integer": ["0", "1", "1", "2", "2", "3", "4", "-1", "2147483647", "-2147483648"],
    "scalar": ["0.0", "1.0", "-0.5", "1e30", "0.001", "1e400", "-0.0"],
    "logical": ["true", "false"],
    "string": STRINGS,
    Primitive("?").dtype: ["1.0", "0.5", "2", "true"],
}


# ---- By mutation ----


@lru_cache(maxsize=1)
def corpus() -> list[str]:
    """The documents of the tests and the samples, and a few more."""
    folders = (ROOT / "tests" / "cases", ROOT / "samples")
    paths = sorted(path for folder in folders for path in folder.rglob("*.nnef"))
    texts = [re.split("# ---- nnef-grad", path.read_text("utf-8"))[0] for path in paths]
    return [*texts, *(network(Random(seed)) for seed in range(40))]


TOKEN = re.compile(r"\s+|#[^\n]*|'[^'\n]*'|\w+(?:\.\w+)?|.", re.DOTALL)


def mutation(rng: Random) -> bytes:
    """A document of the corpus after some mutations."""
    pieces = TOKEN.findall(rng.choice(corpus()))
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        rng.choice(MUTATIONS)(rng, pieces)
    data = "".join(pieces).encode("utf-8", "surrogatepass")
    return flip(rng, data) if rng.random() < 0.1 else data


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
    other = TOKEN.findall(rng.choice(corpus()))
    pieces[_place(rng, pieces) :] = other[_place(rng, other) :]


def _truncate(rng: Random, pieces: list[str]) -> None:
    del pieces[_place(rng, pieces) :]


MUTATIONS: list[Callable[[Random, list[str]], None]] = [
    *[_delete, _delete, _duplicate, _duplicate, _swap, _swap, _replace, _replace],
    *[_replace, _insert, _insert_odd, _insert_expression, _repeat, _splice, _truncate],
]


def flip(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 2, 10]) if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)
