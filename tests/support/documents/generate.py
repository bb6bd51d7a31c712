"""Documents from random numbers: valid ones, flat and compositional, and mutations.

A seed gives the same document everywhere. Valid documents keep away from what
differences.txt lists, so that both parsers make the same graph of them; a mutation may
be anything. Flat documents are random graphs, of the table of operations that these have;
compositional ones are about fragments and expressions, and name few operations.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from support.documents.corpus import FRAGMENTS, OPERATORS, Document
from support.documents.spelling import Spelling
from support.random_graphs.draw import AnyDraw
from support.random_graphs.generate import graph_of


def flat(seed: int) -> str:
    """A flat document: a random walk over the standard operations."""
    draw = AnyDraw(f"document:{seed}")
    return Spelling(draw.random).document(graph_of(draw, draw.between(3, 14)))


# The Khronos parser infers no shapes, or wrong ones, for some biases, indices and
# operands that are broadcast.
_NOT_INFERRED = re.compile(
    r"\b(separable_)?(de)?conv\(|\b(linear|prelu|add_n|sample|desample|\w*roi_\w+)\("
)


def random_document(text: str, valid: bool = True) -> Document:
    """A text of random numbers, with shapes where the Khronos parser knows them."""
    return Document("", text, valid, inferred=not _NOT_INFERRED.search(text))


def compositional(seed: int) -> str:
    """A document with fragments and operator expressions."""
    return _Compositional(seed).document()


class _Compositional:
    """A document with fragments and operator expressions, all tensors of one shape.

    Scalars are such that arithmetic in 32 and in 64 bits gives the same.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.fragments: list[tuple[str, str, int]] = []
        self.loops = 0

    def document(self) -> str:
        """The text."""
        definitions = [
            self._fragment(f"f{i}") for i in range(self.random.randint(1, 4))
        ]
        tensors, statements = ["a", "b"], []
        for name in ("a", "b"):
            statements.append(f"{name} = external(shape = [2, 3]);")
        for i in range(self.random.randint(1, 5)):
            statements += self._statement(f"t{i}", tensors)
        statements.append(f"y = {self._operation(tensors, 2)};")
        body = "".join(f"    {statement}\n" for statement in statements)
        return (
            f"version 1.0;\n{FRAGMENTS}{OPERATORS}\n{''.join(definitions)}"
            f"graph net( a, b ) -> ( y )\n{{\n{body}}}\n"
        )

    def _statement(self, name: str, tensors: list[str]) -> list[str]:
        """A statement, and the tensors that it makes."""
        several = [f for f, kind, _ in self.fragments if kind != "one"]
        if several and self.random.random() < 0.4:
            called = self.random.choice(self.fragments)
            if called[1] != "one":
                parts = [f"{name}_{i}" for i in range(called[2])]
                left = ", ".join(parts)
                right = self._call(called, tensors)
                tensors += parts
                return [f"{f'[{left}]' if called[1] == 'array' else left} = {right};"]
        right = self._operation(tensors, 2)
        tensors.append(name)
        return [f"{name} = {right};"]

    def _fragment(self, name: str) -> str:
        """A definition; its first operand is a tensor, its second an array of them."""
        kind, count = self.random.choice(
            (
                ("one", 1),
                ("one", 1),
                ("one", 1),
                ("tuple", 2),
                ("array", 2),
                ("array", 3),
            )
        )
        scope = ["x", "xs[0]", "xs[1]"]
        body: list[str] = []
        for i in range(self.random.randint(0, 3)):
            body += self._local(f"v{i}", scope)
        if kind == "array":
            results = "y: tensor<scalar>[]"
            items = ", ".join(self._operation(scope, 1) for _ in range(count))
            many = ", ".join(self._scalar(1) for _ in range(count))
            body.append(
                self.random.choice(
                    (f"y = [{items}];", f"y = [for i in [{many}] yield x * i];")
                )
            )
        else:
            names = ["y", "z"][:count]
            results = ", ".join(f"{n}: tensor<scalar>" for n in names)
            body += [f"{n} = {self._operation(scope, 2)};" for n in names]
        text = "".join(f"    {statement}\n" for statement in body)
        self.fragments.append((name, kind, count))
        return (
            f"fragment {name}( x: tensor<scalar>, xs: tensor<scalar>[],"
            " s: tensor<scalar> = 1.0, c: scalar = 0.5, k: integer, l: integer[] = [1, 0],"
            f" q: logical = true, w: string = 'ab' ) -> ( {results} )\n{{\n{text}}}\n\n"
        )

    def _local(self, name: str, scope: list[str]) -> list[str]:
        right = self.random.choice((self._operation, self._tensors_value))(scope, 1)
        if right.startswith("["):
            scope.append(f"{name}[0]")
        else:
            scope.append(name)
        return [f"{name} = {right};"]

    def _tensors_value(self, scope: list[str], depth: int) -> str:
        items = ", ".join(self._operation(scope, 0) for _ in range(2))
        return f"[{items}]"

    # Expressions: each kind says what a name in a fragment may stand for.

    def _operation(self, scope: list[str], depth: int) -> str:
        """An expression that makes an operation."""
        x, y = (self._tensor(scope, depth) for _ in range(2))
        inside = "x" in scope
        i, j = self._loop()
        number = self._scalar(1, inside)
        one = [f for f in self.fragments if f[1] == "one"]
        choices = [
            f"{x} + {y}", f"{x} - {y}", f"{x} * {number}", f"{x} / {y}", f"{x} ^ 2.0",
            f"relu({x})", f"max({x}, {number})", f"(-{x}) * {number}",
            f"select({x} < {y}, {x}, {number})",
            f"add_n([{x}, {y}] + [{x}])", f"add_n([{x}, {y}] * 2)",
            f"add_n([for {i} in [{x}, {y}] yield {i} * {number}])",
            f"add_n([for {i} in [{x}, {y}], {j} in [{number}, 2.0] yield {i} * {j}])",
            f"add_n([for {i} in range_of([{x}, {y}]) if {i} > 0 yield {x} * scalar({i})])",
            f"(relu({x}) if {self._condition(inside)} else tanh({y}))",
            f"sum_reduce({x}, axes = {self._axes(inside)}) * {y}",
            f"leaky_relu({x}, alpha = {number})", *([f"{x} * s"] * inside),
        ]  # fmt: skip
        if one and depth:
            choices += [self._call(self.random.choice(one), scope)] * 4
        return self.random.choice(choices)

    def _loop(self) -> tuple[str, str]:
        """Two names for loops, which must not be those of another loop."""
        self.loops += 1
        return f"i{self.loops}", f"j{self.loops}"

    def _tensor(self, scope: list[str], depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.5:
            return self.random.choice(scope)
        return f"({self._operation(scope, depth - 1)})"

    def _call(self, called: tuple[str, str, int], scope: list[str]) -> str:
        inside = "x" in scope
        optional = [
            f"c = {self._scalar(1, inside)}", f"l = {self._axes(inside)}",
            f"q = {self._condition(inside)}", "w = 'a' + 'bc'",
        ]  # fmt: skip
        named = self.random.sample(optional, self.random.randint(0, 4))
        named.append(f"k = {self._integer(inside)}")
        self.random.shuffle(named)
        tensors = [self.random.choice(scope) for _ in range(3)]
        operands = [tensors[0], f"[{tensors[1]}, {tensors[2]}]"]
        operands += self.random.choice(([], ["0.5"], [tensors[1]]))
        return f"{called[0]}({', '.join(operands + named)})"

    def _scalar(self, depth: int, inside: bool = False) -> str:
        leaves = ["0.5", "1.0", "2.0", "0.25", "3.0", *(["c", "scalar(k)"] * inside)]
        if depth == 0 or self.random.random() < 0.6:
            return self.random.choice(leaves)
        a, b = self.random.choice(leaves), self.random.choice(leaves)
        return self.random.choice(
            (
                f"({a} + {b})", f"({a} * {b})", f"({a} - {b} * 2.0)", f"(-{a})",
                f"scalar({self._integer(inside)})",
                f"({a} if {self._condition(inside)} else {b})",
            )
        )  # fmt: skip

    def _integer(self, inside: bool) -> str:
        i, _ = self._loop()
        leaves = ["0", "1", "2", "7", *(["k", "l[0]", "length_of(w)"] * inside)]
        a, b = self.random.choice(leaves), self.random.choice(leaves)
        return self.random.choice(
            (
                a, b, f"({a} + {b})", f"({a} - {b})", f"{a} * 2", f"({a} / 2)",
                "length_of([1, 2, 3])", "integer(2.5)", "integer(true)", "integer('12')",
                "[4, 5, 6][1]", "[4, 5, 6][1:][0]", f"[for {i} in [1, 2] yield {i} * {i}][1]",
            )
        )  # fmt: skip

    def _condition(self, inside: bool) -> str:
        a, b = (self.random.choice(("0", "1", "2")) for _ in range(2))
        leaves = [
            "true", "false", f"{a} < {b}", f"{a} == {b}", f"{a} in [1, 2]", f"(!({a} < {b}))",
            *(["q", "(!q)", f"k > {a}", "length_of(l) == 2", "w in ['ab', 'c']"] * inside),
        ]  # fmt: skip
        left, right = self.random.choice(leaves), self.random.choice(leaves)
        return self.random.choice(
            (left, left, f"({left}) && ({right})", f"({left}) || ({right})")
        )

    def _axes(self, inside: bool) -> str:
        i, _ = self._loop()
        choices = [
            "[0]", "[1]", "[0, 1]", "[0] + [1]", f"[for {i} in [0, 1] yield 1 - {i}]",
            "range_of([5, 6])", "[0, 1, 2][:2]",
            *(["l[:1]", f"[for {i} in range_of(l) yield {i}]"] * inside),
        ]  # fmt: skip
        return self.random.choice(choices)


# ---- Mutations ----

_TOKEN = re.compile(
    r"'[^'\n]*'|\w[\w.]*|->|&&|\|\||[<>=!]=|\s+|.", re.DOTALL
)  # fmt: skip
_SPARE = (
    "x", "y", "1", "0", "2.0", "true", "'a'", "(", ")", "[", "]", "{", "}", ",", ";", ":",
    "=", "+", "*", "<", ">", "relu", "shape", "axes", "scalar", "integer", "if", "else",
    "for", "in", "yield", "fragment", "graph", "tensor", "version", "extension", "->", "?",
)  # fmt: skip


def mutations(text: str, seed: int, count: int) -> Iterator[str]:
    """Copies of a text in which a token is left out, doubled, replaced or moved."""
    chance = random.Random(seed)
    for _ in range(count):
        tokens = _TOKEN.findall(text)
        places = [i for i, token in enumerate(tokens) if token.strip()]
        place, other = chance.choice(places), chance.choice(places)
        how = chance.randrange(5)
        if how == 0:
            tokens[place] = ""
        elif how == 1:
            tokens[place] = f"{tokens[place]} {tokens[place]}"
        elif how == 2:
            tokens[place] = chance.choice(_SPARE)
        elif how == 3:
            tokens[place] = tokens[other]
        else:
            tokens[place], tokens[other] = tokens[other], tokens[place]
        yield "".join(tokens)
