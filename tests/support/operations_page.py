"""docs/operations.md and its table: how each standard operation is differentiated, made of the
rules.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache

import nnef_grad
from nnef_grad.autodiff.rules import DERIVATIVES, SUFFIX, Rules
from nnef_grad.language.library import STDLIB, FragmentFile
from nnef_grad.ops import DECOMPOSITIONS, RULES
from nnef_grad.ops.traits import DECISIONS, SOURCES, STEPS
from support.formulas import NoFormulaError, formulas
from support.operation_models import models
from support.tables import csv_of

HEAD = """# How each operation is differentiated

All {count} operations of the NNEF 1.0.5 standard library have a derivative, or are listed by name as having none. A test makes this page from
the rules.

| how | what that means | operations |
|---|---|---|
| rule | the operation has its own rule, in NNEF in [`derivatives.nnef`](../nnef_grad/autodiff/derivatives.nnef) or, if it needs shapes, in Python beside the operation's shape function | {rule} |
| body | its definition is differentiated, from the standard library or, if it needs shapes, from Python | {body} |
| rule and body | unusual borders are padded first; then the rule applies | {both} |
| zero | a step function, whose derivative is zero wherever it exists | {zero} |
| none | nothing to differentiate: no operands, or results that are truth values or indices | {none} |

Every operation that a rule or a body uses is among them, so you can differentiate every backward graph again.
[Conventions](conventions.md) lists the choices where a derivative is not unique.

A bar marks a gradient: $\\bar{{x}}$, `dx` in the rules, is the derivative of the outputs of the graph with respect to $x$. A dot is an
element-wise product; adjacent matrices, in `matmul` and `linear`, are matrix products. Rules ignore broadcasting: the gradient of a broadcast
operand is [summed afterwards](broadcasting.md). For a rule in Python, the text is an example of what it emits.

[The formula and the rule of each operation](tables/operations.csv)
"""
COLUMNS = ("operation", "how", "where", "derivative", "remark", "rule")

# Of the rules in Python, and where the text of a rule says less than a formula.
FORMULAS = {
    "matmul": (r"\bar{A} = \bar{C} \, B^T", r"\bar{B} = A^T \, \bar{C}"),
    "add_n": (r"\bar{x}_i = \bar{y}",),
    "sum_reduce": (r"\bar{x}_i = \bar{y}",),
    "mean_reduce": (r"\bar{x}_i = \frac{\bar{y}}{n}",),
    "max_reduce": (
        r"\bar{x}_i = \begin{cases} \frac{\bar{y}}{k} & \text{if } x_i = y \\"
        r" 0 & \text{otherwise} \end{cases}",
    ),
    "moments": (
        r"\bar{x}_i = \frac{\overline{\text{mean}}}{n}"
        r" + \frac{2 \cdot \overline{\text{variance}}}{n} \cdot \left(x_i - \text{mean}\right)",
    ),
    "conv": (
        r"\overline{\text{input}} = \text{deconv}\left(\overline{\text{output}}, \text{filter}\right)",
        r"\overline{\text{bias}} = \overline{\text{output}}",
    ),
    "deconv": (
        r"\overline{\text{input}} = \text{conv}\left(\overline{\text{output}}, \text{filter}\right)",
        r"\overline{\text{bias}} = \overline{\text{output}}",
    ),
    "box": (
        r"\overline{\text{input}} = \text{debox}\left(\overline{\text{output}}\right)",
    ),
    "debox": (
        r"\overline{\text{input}} = \text{box}\left(\overline{\text{output}}\right)",
    ),
    "max_pool": (
        r"\overline{\text{input}} = \text{desample}\left(\overline{\text{output}},"
        r" \text{argmax pool}\left(\text{input}\right)\right)",
    ),
    "max_pool_with_index": (
        r"\overline{\text{input}} = \text{desample}\left(\overline{\text{output}},"
        r" \text{index}\right)",
    ),
    "avg_pool": (
        r"\overline{\text{input}} = \text{debox}\left(\frac{\overline{\text{output}}}{n}\right)",
    ),
    "sample": (
        r"\overline{\text{input}} = \text{desample}\left(\overline{\text{output}},"
        r" \text{index}\right)",
    ),
    "desample": (
        r"\overline{\text{input}} = \text{sample}\left(\overline{\text{output}}, \text{index}\right)",
    ),
}
FORMULAS["min_reduce"] = FORMULAS["max_reduce"]
NOTES = {
    "matmul": "If neither factor is transposed; the rule has the other three cases.",
    "sum_reduce": "Each element receives the gradient of its sum.",
    "mean_reduce": "$n$ is the number of elements of each mean.",
    "max_reduce": "$k$ is the number of elements that share the maximum.",
    "min_reduce": "$k$ is the number of elements that share the minimum.",
    "moments": "$n$ is the number of elements of each mean.",
    "box": "For a mean, the gradient is first divided by the volume of the window.",
    "debox": "The result is divided by the volume of the window if the operation is.",
    "max_pool": "A maximum that lies in the border receives nothing.",
    "avg_pool": "$n$ is the number of elements of each window.",
    "conv": "The gradient of the filter is a convolution of the input with the gradient.",
    "deconv": "The gradient of the filter is a convolution of the gradient with the input.",
}


def page() -> str:
    """The text of the page, without its table."""
    counts = Counter(map(how, STDLIB))
    return HEAD.format(
        count=len(STDLIB),
        both=counts["rule and body"],
        **{word: counts[word] for word in ("rule", "body", "zero", "none")},
    )


@cache
def table() -> str:
    """The table: a row for each operation."""
    return csv_of(COLUMNS, map(row, STDLIB))


def row(name: str) -> tuple[str, ...]:
    """The formulas of an operation, what is to be said of them, and the rule."""
    derived = how(name) != "none"
    typeset = ", ".join(f"${formula}$" for formula in formulas_of(name) if derived)
    remark, rule = (
        (" ".join(remarks(name)), "\n\n".join(rules(name))) if derived else ("", "")
    )
    return f"`{name}`", how(name), where(name), typeset, remark, rule


def how(name: str) -> str:
    """How an operation is differentiated."""
    if name in SOURCES | DECISIONS:
        return "none"
    if name in STEPS:
        return "zero"
    if Rules().rule(name) is not None:
        return "rule and body" if name in DECOMPOSITIONS else "rule"
    return "body"


LISTED = {"SOURCES": SOURCES, "DECISIONS": DECISIONS, "STEPS": STEPS}


def where(name: str) -> str:
    """The files that say so, with what stands there."""
    places = [
        f"`{table}` in ops/traits.py" for table in LISTED if name in LISTED[table]
    ]
    if name + SUFFIX in DERIVATIVES:
        places.append(f"`{name}{SUFFIX}` in derivatives.nnef")
    elif name in RULES:
        places.append(_python(RULES[name]))
    if name in DECOMPOSITIONS:
        places.append(_python(DECOMPOSITIONS[name].build))
    if not places and how(name) == "body":
        places.append("stdlib.nnef")
    return ", ".join(places)


def _python(function: object) -> str:
    names = (getattr(function, "__module__"), getattr(function, "__name__"))  # noqa: B009
    module, name = names
    return f"`{name}` in {module.removeprefix('nnef_grad.').replace('.', '/')}.py"


# ---- One operation ----


def formulas_of(name: str) -> tuple[str, ...]:
    """The derivative, as formulas."""
    if name in FORMULAS:
        return FORMULAS[name]
    if how(name) == "zero":
        return (r"\bar{x} = 0",)
    rule = DERIVATIVES.get(name + SUFFIX)
    return tuple(formulas(rule)) if rule else _body(name)


def _body(name: str) -> tuple[str, ...]:
    """What the operation computes, where its derivative is that of its body."""
    fragment = STDLIB[name]
    if how(name) != "body" or fragment.body is None:
        return ()
    try:
        return tuple(formulas(fragment))
    except NoFormulaError:
        return ()


def remarks(name: str) -> Iterator[str]:
    """What is to be known beside the formulas."""
    if name in NOTES:
        yield NOTES[name]
    elif name in RULES and name not in FORMULAS:
        yield prose_of(RULES[name])
    if name in DECOMPOSITIONS and how(name) == "body":
        yield prose_of(DECOMPOSITIONS[name].build)
    if how(name) == "body":
        yield "Its body is differentiated."


def prose_of(function: Callable[..., object]) -> str:
    """What a function says of itself."""
    return " ".join((inspect.getdoc(function) or "").split())


def rules(name: str) -> Iterator[str]:
    """The rule as text; of what Python does, an example."""
    if name + SUFFIX in DERIVATIVES:
        yield text_of(DERIVATIVES, name + SUFFIX)
    elif how(name) == "body" and STDLIB[name].body is not None:
        yield text_of(STDLIB, name)
    elif name in RULES:
        yield "# {}\n{}".format(*example(name))


def text_of(library: FragmentFile, name: str) -> str:
    """The text of a fragment with a body, with the comment before it."""
    pattern = rf"(?:^#[^\n]*\n)*^fragment {name}\b.*?^\}}"
    found = re.search(pattern, library.text, re.DOTALL | re.MULTILINE)
    assert found
    return found[0]


@cache
def example(name: str) -> tuple[str, str]:
    """A statement with the operation, and what its gradients are."""
    call = re.compile(rf".* = {name}\(.*\)")
    for model in models():
        if model.operation == name:
            graph = nnef_grad.loads(model.text)
            backward = nnef_grad.dumps(nnef_grad.differentiate(graph))
            for paragraph in backward.split("\n\n"):
                comment, _, lines = paragraph.strip().partition("\n")
                if call.fullmatch(comment.removeprefix("# ")):
                    return comment.removeprefix("# "), _dedent(lines)
    raise AssertionError(name)


def _dedent(lines: str) -> str:
    return "\n".join(line.strip() for line in lines.rstrip("}\n ").splitlines())
