"""The parser reads what the grammar says: Lark, which reads by the grammar itself, finds the
same trees and the same errors.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import lru_cache
from random import Random
from typing import Any

import pytest
from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from fuzz.documents import GRAMMAR, from_grammar, mutation
from nnef_grad.base.errors import InvalidGraphError, NnefSyntaxError, brief
from nnef_grad.base.source import Source
from nnef_grad.language import syntax
from nnef_grad.language.lexical import DTYPE, END, KINDS
from nnef_grad.language.parser import parse_document, parse_quantization
from nnef_grad.language.syntax_errors import EXPRESSION, _hint

QUANTIZED = '"x": linear_quantize(min = -1.0, max = 1.0, bits = 8);\n"y": f(0.5);\n'


@lru_cache(maxsize=1)
def lark() -> Lark:
    starts = ["document", "quantization"]
    grammar = GRAMMAR.read_text("utf-8")
    return Lark(grammar, parser="lalr", lexer="basic", start=starts)


# ---- Trees, as text ----

BRACKETS = ("LPAR", "RPAR", "LSQB", "RSQB")
PASSED = ("name", "number", "string", "logical", "group", "version", "generic")
RULES = {
    "typed_invocation": "invocation", "tuple_expr": "tuple", "targets": "tuple",
    "primitive": "{}", "tensor": "tensor<{}>", "unbound_tensor": "tensor<>",
    "array_type": "{}[]", "extension": "{}",
}  # fmt: skip


def of_lark(tree: Any) -> str:
    """A tree of Lark."""
    if tree is None:
        return "_"
    if isinstance(tree, Token):
        return tree.strip("<> \t\r\n\f\v") if tree.type == DTYPE else str(tree)
    children = [c for c in tree.children if getattr(c, "type", "") not in BRACKETS]
    rule, parts = str(tree.data), [of_lark(child) for child in children]
    if rule == "array_expr":
        parts = [part for part in parts if part != "_"]
    if rule == "literals":
        return numbers(parts[0])
    if rule == "tuple_type":
        return f"({', '.join(parts)})"
    if rule in PASSED or (rule == "tuple_target" and len(parts) == 1):
        return parts[0]
    form = RULES.get(rule, "tuple" if rule == "tuple_target" else rule)
    if "{}" in form or rule == "unbound_tensor":
        return form.format(" ".join(parts) or "?")
    return f"({' '.join([form, *parts])})"


def numbers(text: str) -> str:
    words = re.findall(r"[^][,\s]+", text)
    return f"(literals {' '.join(words)})"


def written(rule: str, *parts: Any) -> str:
    return f"({' '.join([rule, *map(of_node, parts)])})"


def of_node(node: Any) -> str:
    """The same of a node of the parser."""
    match node:
        case None:
            return "_"
        case str():
            return node
        case syntax.Literal():
            return of_literal(node.span.text)
        case syntax.Identifier():
            return node.name
        case syntax.Array(items) if isinstance(items, syntax.Numbers):
            return numbers(node.span.text)
        case syntax.Array(items):
            return written("array_expr", *items)
        case syntax.Tuple(items):
            return written("tuple", *items)
        case syntax.Operator(symbol, (operand,)):
            return written("unary", symbol, operand)
        case syntax.Operator(symbol, (left, right)):
            return written("binary", left, symbol, right)
        case syntax.Conditional(value, condition, otherwise):
            return written("if_else", value, condition, otherwise)
        case syntax.Comprehension(loops, condition, value):
            return written("comprehension", *loops, condition, value)
        case syntax.Invocation(name, dtype, arguments):
            types = [] if dtype is None else [dtype]
            return written("invocation", name, *types, *arguments)
        case syntax.Subscript(value, index):
            return written("subscript", value, index)
        case syntax.Range(value, begin, end):
            return written("range_expr", value, begin, end)
        case syntax.Loop(name, value) | syntax.Builtin(name, value):
            return written(type(node).__name__.lower(), name, value)
        case syntax.Keyword(name, value):
            return written("keyword", name, value)
        case syntax.Assignment(target, value):
            return written("assignment", target, value)
        case syntax.Parameter(name, type_, default):
            return written("parameter", name, str(type_), default)
        case syntax.Result(name, type_):
            return written("result", name, str(type_))
        case syntax.Fragment(name, generic, parameters, results, body):
            given = written("parameters", *parameters) if parameters else None
            found = written("results", *results)
            bodies = [] if body is None else [written("body", *body)]
            return written("fragment", name, generic, given, found, *bodies)
        case syntax.GraphDefinition(name, parameters, results, body):
            sides = (written("names", *side) for side in (parameters, results))
            return written("graph", name, *sides, written("body", *body))
        case syntax.Document(version, extensions, fragments, graph):
            return written("document", version, *extensions, *fragments, graph)
        case syntax.Quantization(_, operation):
            return written("quantized", node.span.text, operation)
    raise AssertionError(node)


def of_literal(text: str) -> str:
    """A number may have signs of its own, and brackets after them."""
    text = re.sub(r"#[^\r\n\f]*|[\s(]", "", text) if text[0] not in "'\"" else text
    return written("unary", "-", of_literal(text[1:])) if text[0] == "-" else text


# ---- Errors: their places, and what was expected there ----

ATOMS = {"NAME", "NUMBER", "STRING", "BUILTIN", "PRIMITIVE", "LITERALS", "(", "["}


def by_lark(text: str, start: str) -> Any:
    try:
        return of_lark(lark().parse(text, start=start))
    except UnexpectedToken as error:
        hint = _hint(str(error.token), kinds(error.accepts or set()))
        if error.token.type == "$END":
            return f"the text ends too early{hint}"
        return error.token.start_pos, f"unexpected '{brief(error.token)}'{hint}"
    except UnexpectedCharacters as error:
        return error.pos_in_stream


def kinds(accepted: set[str]) -> set[str]:
    """The kinds of words that Lark accepts, as errors tell them."""
    words = {t.name: t.pattern.value for t in lark().terminals} | {"$END": END}
    found = {word if (word := words[name]) in KINDS else name for name in accepted}
    found = {END if name == "$END" else name for name in found}
    if "true" in found:
        return {*found - ATOMS, EXPRESSION}
    return found - {"["} if "<" in found else found


def by_the_parser(text: str, start: str) -> Any:
    """None where a word is refused for its characters or its size: Lark reads any."""
    try:
        if start == "quantization":
            entries = parse_quantization(Source("t", text))
            return written("quantization", *entries)
        return of_node(parse_document(Source("t", text)))
    except NnefSyntaxError as error:
        message, span, *_ = error.problems[0]
        assert span is not None
        if message.startswith("a string must consist of"):
            return None
        if message.startswith("the text ends"):
            return message
        is_word = message.startswith("unexpected '")
        return (span.start, message) if is_word else span.start
    except InvalidGraphError:
        return None


def assert_alike(text: str, start: str = "document") -> None:
    found = by_the_parser(text, start)
    if found is not None and not re.search(r"[\x00-\x08\x0e-\x1f]", text):
        assert found == by_lark(text, start), text


@pytest.mark.parametrize("seed", range(200))
def test_the_trees_and_errors_are_those_of_lark(seed: int) -> None:
    assert_alike(from_grammar(Random(seed)))
    assert_alike(mutation(Random(seed)).decode("utf-8", "replace"))


@pytest.mark.parametrize("end", range(2, len(QUANTIZED)))
def test_a_text_that_ends_too_early(end: int) -> None:
    assert_alike(QUANTIZED[:end], "quantization")


def test_the_compiler_does_not_import_numpy() -> None:
    program = (
        "import sys, nnef_grad;"
        "nnef_grad.loads('version 1.0; graph g(x) -> (y) { x = external(shape = [1]); y = copy(x); }');"
        "print([name for name in sys.modules if name.split('.')[0] in ('lark', 'numpy')])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout == "[]\n"
