"""Formulas of rules, typeset: the body of a fragment of NNEF in the notation of LaTeX.

A comparison, or a name that is used once, is written where it is used, so that most rules
are one formula for each gradient. `dx`, the gradient of `x`, is written with a bar.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields

from nnef_grad.autodiff.rules import SUFFIX
from nnef_grad.language import syntax
from nnef_grad.language.syntax import (
    Assignment,
    Builtin,
    Conditional,
    Expression,
    Fragment,
    Identifier,
    Invocation,
    Keyword,
    Literal,
    Operator,
)

# How tightly what is written holds together: a sum, a product, a power, a single thing.
CHOICE, LOOSE, SUM, PRODUCT, POWER, ATOM = range(6)
Written = tuple[str, int]
Names = Mapping[str, Expression]


class NoFormulaError(Exception):
    """What is no formula, such as an array."""


def formulas(fragment: Fragment) -> list[str]:
    """A formula for each result of a fragment, after those of names that are used twice.

    Raises:
        NoFormulaError: a statement of it is none.
    """
    body = fragment.body or ()
    used = Counter(name for a in body for name in names_of(a.value))
    results = {result.name for result in fragment.results}
    replaced = {
        target: statement.value
        for statement in body
        for target in [name_of(statement)]
        if target not in results and is_replaced(statement.value, used[target])
    }
    writer = Writer(replaced, gradients(fragment))
    return [
        f"{writer.name(name_of(a))} = {writer.write(a.value)[0]}"
        for a in body
        if name_of(a) not in replaced
    ]


def is_replaced(value: Expression, uses: int) -> bool:
    """Whether a name is replaced by its value: no choice stands inside a formula."""
    if isinstance(value, Conditional):
        return False
    if isinstance(value, Operator) and value.symbol in COMPARISONS:
        return True
    is_choice = isinstance(value, Invocation) and value.name == "select"
    return uses == 1 and not is_choice


def gradients(fragment: Fragment) -> dict[str, str]:
    """The names of the gradients in a rule, with what each is the gradient of."""
    if not fragment.name.endswith(SUFFIX):
        return {}
    named = {parameter.name for parameter in fragment.parameters}
    given = {f"d{name}": name for name in named if f"d{name}" in named}
    return given | {result.name: result.name[1:] for result in fragment.results}


def name_of(statement: Assignment) -> str:
    if not isinstance(statement.target, Identifier):
        raise NoFormulaError
    return statement.target.name


def names_of(expression: object) -> Iterator[str]:
    """The names in an expression, each as often as it stands there."""
    if isinstance(expression, Identifier):
        yield expression.name
    elif isinstance(expression, tuple):
        for item in expression:
            yield from names_of(item)
    elif isinstance(expression, syntax.Node):
        for field in fields(expression):
            yield from names_of(getattr(expression, field.name))


class Writer:
    """Writes expressions.

    Attributes:
        replaced: the names that are replaced, with their values.
        bars: the names of gradients, with what each is the gradient of.
    """

    def __init__(self, replaced: Names, bars: Mapping[str, str]) -> None:
        self.replaced, self.bars = replaced, bars

    def name(self, name: str) -> str:
        if name in self.bars:
            of = symbol(self.bars[name])
            return rf"\overline{{{of}}}" if of.startswith(WORD) else rf"\bar{{{of}}}"
        return symbol(name)

    def write(self, expression: Expression) -> Written:
        """An expression, and how tightly it holds together."""
        writers: dict[type, Callable[[Expression], Written]] = {
            Identifier: self._identifier,
            Literal: self._literal,
            Operator: self._operator,
            Conditional: self._conditional,
            Builtin: lambda e: self.write(getattr(e, "argument")),  # noqa: B009
            Invocation: self._invocation,
        }
        if type(expression) not in writers:
            raise NoFormulaError
        return writers[type(expression)](expression)

    def inside(self, expression: Expression, least: int) -> str:
        """An expression, in parentheses where it holds together less tightly."""
        text, tightness = self.write(expression)
        return text if tightness >= least else rf"\left({text}\right)"

    def _identifier(self, expression: Expression) -> Written:
        assert isinstance(expression, Identifier)
        if expression.name in self.replaced:
            return self.write(self.replaced[expression.name])
        return self.name(expression.name), ATOM

    def _literal(self, expression: Expression) -> Written:
        assert isinstance(expression, Literal)
        value = expression.value
        if isinstance(value, (str, bool)):
            raise NoFormulaError
        known = CONSTANTS.get(value, f"{value:g}")
        return known, PRODUCT if value < 0 else ATOM

    def _operator(self, expression: Expression) -> Written:
        assert isinstance(expression, Operator)
        symbol, operands = expression.symbol, expression.operands
        if len(operands) == 1:
            sign = r"\text{not }" if symbol == "!" else "-"
            return sign + self.inside(operands[0], PRODUCT), SUM
        left, right = operands
        if symbol == "/":
            return rf"\frac{{{self.write(left)[0]}}}{{{self.write(right)[0]}}}", PRODUCT
        if symbol == "^":
            return f"{{{self.inside(left, ATOM)}}}^{{{self.write(right)[0]}}}", POWER
        sign, tightness, least = SIGNS[symbol]
        both = self.inside(left, tightness), self.inside(right, least)
        return sign.join(both), tightness

    def _conditional(self, expression: Expression) -> Written:
        assert isinstance(expression, Conditional)
        return self._cases(expression.condition, expression.value, expression.otherwise)

    def _invocation(self, expression: Expression) -> Written:
        assert isinstance(expression, Invocation)
        values = [v for v in expression.arguments if not isinstance(v, Keyword)]
        if expression.name == "select":
            return self._cases(*values)
        if expression.name in UNWRITTEN:
            return self.write(values[0])
        if expression.name in FUNCTIONS:
            form, least, tightness = FUNCTIONS[expression.name]
            return form.format(*(self.inside(v, least) for v in values)), tightness
        if expression.name == "matmul":
            return self._product(expression)
        arguments = ", ".join(self.write(value)[0] for value in values)
        name = symbol(expression.name)
        return rf"{name}\left({arguments}\right)", ATOM

    def _cases(
        self, condition: Expression, value: Expression, otherwise: Expression
    ) -> Written:
        first, test, second = (self.write(e)[0] for e in (value, condition, otherwise))
        rows = rf"{first} & \text{{if }} {test} \\ {second} & \text{{otherwise}}"
        return rf"\begin{{cases}} {rows} \end{{cases}}", CHOICE

    def _product(self, product: Invocation) -> Written:
        """A product of matrices."""
        turned = {a.name for a in product.arguments if isinstance(a, Keyword)}
        factors = []
        for name, value in zip("AB", product.values, strict=False):
            factor = self.inside(value, ATOM)
            factors.append(
                f"{{{factor}}}^T" if f"transpose{name}" in turned else factor
            )
        return r" \, ".join(factors), PRODUCT


# What is written between two operands, how tightly it holds together, and how tightly its
# right operand has to.
SIGNS = {
    "+": (" + ", SUM, SUM),
    "-": (" - ", SUM, PRODUCT),
    "*": (r" \cdot ", PRODUCT, PRODUCT),
    "<": (" < ", LOOSE, SUM),
    ">": (" > ", LOOSE, SUM),
    "<=": (r" \le ", LOOSE, SUM),
    ">=": (r" \ge ", LOOSE, SUM),
    "==": (" = ", LOOSE, SUM),
    "!=": (r" \ne ", LOOSE, SUM),
}
# How operations are written; how tightly their operands, and they themselves, hold together.
FUNCTIONS = {
    **{
        name: (rf"\{name}\left({{0}}\right)", CHOICE, ATOM)
        for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "log")
    },
    "log2": (r"\log_2\left({0}\right)", CHOICE, ATOM),
    "exp": ("e^{{{0}}}", CHOICE, POWER),
    "sqr": ("{{{0}}}^2", ATOM, POWER),
    "sqrt": (r"\sqrt{{{0}}}", CHOICE, ATOM),
    "rsqrt": (r"\frac{{1}}{{\sqrt{{{0}}}}}", CHOICE, PRODUCT),
    "abs": (r"\left|{0}\right|", CHOICE, ATOM),
    "sign": (r"\text{{sign}}\left({0}\right)", CHOICE, ATOM),
    "sigmoid": (r"\sigma\left({0}\right)", CHOICE, ATOM),
    "sum_reduce": (r"\sum_{{\text{{axes}}}} {0}", PRODUCT, PRODUCT),
    "mean_reduce": (r"\text{{mean}}\left({0}\right)", CHOICE, ATOM),
    "min": (r"\min\left({0}, {1}\right)", CHOICE, ATOM),
    "max": (r"\max\left({0}, {1}\right)", CHOICE, ATOM),
    "and": (r"{0} \text{{ and }} {1}", LOOSE, CHOICE),
}
UNWRITTEN = ("copy", "cast")
COMPARISONS = ("<", ">", "<=", ">=", "==", "!=")
CONSTANTS = {
    0.5: r"\tfrac{1}{2}",
    -0.5: r"-\tfrac{1}{2}",
    1.4426950408889634: r"\log_2 e",
    0.3989422804014327: r"\tfrac{1}{\sqrt{2\pi}}",
    0.06649038006690545: r"\tfrac{1}{6\sqrt{2\pi}}",
    0.0001: "10^{-4}",
}
WORD = r"\text"
GREEK = ("alpha", "beta", "epsilon", "lambda", "sigma")


def symbol(name: str) -> str:
    """A name: a letter, a Greek letter, or a word."""
    if len(name) == 1:
        return name
    if name in GREEK:
        return f"\\{name}"
    return f"{WORD}{{{name.replace('_', ' ')}}}"
