"""The loop over Lark's tables finds what Lark's own loop finds, in fewer steps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from random import Random
from types import FrameType
from typing import Any

import pytest
from lark import Lark, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from fuzz.documents import from_grammar, mutation
from nnef_grad.base.source import Source
from nnef_grad.language.generate import generated
from nnef_grad.language.lalr import (
    UNKNOWN,
    Automaton,
    UnexpectedWordError,
    _Reader,
    grammar_path,
)
from nnef_grad.language.parser import parse_document

START = "document"
QUANTIZED = '"x": linear_quantize(min = -1.0, max = 1.0, bits = 8);\n"y": f(0.5);\n'


@lru_cache(maxsize=1)
def lark() -> Lark:
    grammar = grammar_path().read_text("utf-8")
    return Lark(grammar, parser="lalr", lexer="basic", start=["document", "library"])


class Trees:
    """Makes a tuple of every rule: its name, and its parts. Words are their text."""

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        return lambda *parts: (name, *map(text_of, flat(parts)))


def flat(parts: tuple[Any, ...]) -> Iterator[Any]:
    for part in parts:
        yield from part if isinstance(part, list) else [part]


def text_of(part: Any) -> Any:
    return part[part.lastindex] if hasattr(part, "lastindex") else part


def as_tuple(tree: Any) -> Any:
    if not isinstance(tree, Tree):
        return tree if tree is None else str(tree)
    return (str(tree.data), *map(as_tuple, tree.children))


@lru_cache(maxsize=1)
def automaton() -> Automaton:
    return Automaton(generated(grammar_path().read_bytes()), Trees())


def by_lark(text: str) -> Any:
    """The tree, or the place of the first error and what could be there."""
    try:
        return as_tuple(lark().parse(text, start=START))
    except UnexpectedToken as error:
        is_end = error.token.type == "$END"
        return len(text) if is_end else error.token.start_pos, error.accepts
    except UnexpectedCharacters as error:
        return error.pos_in_stream, "no word"


def by_the_automaton(text: str) -> Any:
    try:
        return automaton().parse(START, text, 0, len(text))
    except UnexpectedWordError as error:
        place = error.word.start(error.word.lastindex or 0)
        return place, error.accepted if error.word.lastgroup != UNKNOWN else "no word"


@pytest.mark.parametrize("seed", range(200))
def test_the_trees_and_errors_are_those_of_lark(seed: int) -> None:
    for text in (
        from_grammar(Random(seed)),
        mutation(Random(seed)).decode("utf-8", "replace"),
    ):
        assert by_the_automaton(text) == by_lark(text), text


@pytest.mark.parametrize("end", range(2, len(QUANTIZED)))
def test_the_first_text_that_is_read_may_have_an_error(end: int) -> None:
    """Where nothing was read before, states get entries while it is found out what could
    follow.
    """
    text = QUANTIZED[:end].rstrip(";\n")
    first = Automaton(generated(grammar_path().read_bytes()), Trees())
    with pytest.raises(UnexpectedWordError) as caught:
        first.parse("quantization", text, 0, len(text))
    assert caught.value.accepted or caught.value.word.lastgroup == UNKNOWN


def turns(text: str) -> int:
    """The turns of the loop: in each it asks what follows in a state."""
    count = 0

    def count_turns(frame: FrameType, event: str, function: object) -> None:
        nonlocal count
        is_get = event == "c_call" and getattr(function, "__name__", "") == "get"
        count += is_get and frame.f_code is _Reader._advance.__code__

    sys.setprofile(count_turns)
    try:
        parse_document(Source("t", text))
    finally:
        sys.setprofile(None)
    return count


def document(value: str) -> str:
    return (
        f"version 1.0; graph g( x ) -> ( y ) {{ x = external(shape = [2]); {value} }}"
    )


STATEMENT = "y = add(x, x); "


def test_the_ladder_of_precedence_costs_a_plain_argument_nothing() -> None:
    """One turn for each of the 9 words, and one for each of the 7 parts that they make
    up: three names, the list of arguments, the invocation, the statement, the body.
    """
    short, long = (document(STATEMENT * count) for count in (1, 2))
    turns(long)
    assert turns(long) - turns(short) == 9 + 7


def test_statements_that_are_alike_are_read_without_the_tables() -> None:
    short, long = (document(STATEMENT * count) for count in (3, 9))
    turns(long)
    assert turns(long) == turns(short)


@pytest.mark.parametrize("seed", range(100))
def test_the_trees_of_statements_that_are_alike_are_those_of_lark(seed: int) -> None:
    """Statements in any order: the first and the further ones of a body are not alike."""
    rng = Random(seed)
    statements = [
        "y = add(x, x);",
        "z = sub(y, x, );" if seed % 10 == 0 else "z = sub(y, x);",
        "[u, v] = split(x, axis = 1, ratios = [1, 1]);",
        "w = -x[2] * (1.0 + y) ^ 2.0;",
        "w = f<scalar>(x, [y, z], 'a') if true else g();",
    ]
    bodies = [" ".join(rng.choices(statements, k=rng.randint(1, 6))) for _ in range(9)]
    head = "( x: tensor<scalar> ) -> ( y: tensor<scalar> )"
    fragments = " ".join(f"fragment f{head} {{ {body} }}" for body in bodies)
    text = f"version 1.0; {fragments} graph g( x ) -> ( y ) {{ {bodies[0]} }}"
    assert by_the_automaton(text) == by_lark(text), text
