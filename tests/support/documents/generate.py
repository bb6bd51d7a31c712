"""Documents from random numbers: valid ones, flat and compositional, and mutations.

A seed gives the same document everywhere. Valid documents keep away from what
differences.txt lists, so that both parsers make the same graph of them; a mutation may
be anything.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator

from support.documents.corpus import FRAGMENTS, OPERATORS

Shape = tuple[int, ...]

_UNARY = (
    "copy", "neg", "exp", "sin", "tanh", "abs", "sign", "floor", "round", "sqr", "sqrt",
    "sigmoid", "relu", "elu", "selu", "gelu", "silu", "softplus", "rcp", "log2",
)  # fmt: skip
_BINARY = ("add", "sub", "mul", "div", "pow", "min", "max")
_COMPARE = ("lt", "gt", "le", "ge", "eq", "ne")
_REDUCE = ("sum_reduce", "max_reduce", "min_reduce", "mean_reduce")
_SCALARS = ("0.5", "1.0", "2.0", "0.25", "-1.5", "-0.5", "3.0", "1e-3", "0.1", "1e10")


class Flat:
    """A flat document: a random walk over the standard operations."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.statements: list[str] = []
        self.tensors: dict[str, tuple[str, Shape]] = {}
        self.inputs: list[str] = []
        self.fresh = 0

    def document(self) -> str:
        """The text."""
        for _ in range(self.random.randint(1, 3)):
            self._external()
        for _ in range(self.random.randint(3, 14)):
            self.random.choice(_STEPS)(self)
        rest = [name for name in self.tensors if name not in self.inputs]
        if not rest:
            self.add("copy({})", self.any())
            rest = list(self.tensors)[-1:]
        outputs = self.random.sample(rest, min(len(rest), self.random.randint(1, 3)))
        body = "".join(f"    {statement}\n" for statement in self.statements)
        return (
            f"version 1.0;\n\ngraph net( {', '.join(self.inputs)} )"
            f" -> ( {', '.join(outputs)} )\n{{\n{body}}}\n"
        )

    # Tensors

    def name(self) -> str:
        """A name that is not taken."""
        self.fresh += 1
        return self.random.choice(("t", "x_", "Y", "_")) + str(self.fresh)

    def of(self, dtype: str, test: Callable[[Shape], bool] = bool) -> str | None:
        """Some tensor of a data type, and of a shape that passes a test."""
        found = [n for n, (t, s) in self.tensors.items() if t == dtype and test(s)]
        return self.random.choice(found) if found else None

    def any(self) -> str:
        """Some tensor."""
        return self.random.choice(list(self.tensors))

    def shape(self, name: str) -> Shape:
        """The shape of a tensor."""
        return self.tensors[name][1]

    def add(
        self, call: str, *operands: str, dtype: str = "", shape: Shape | None = None
    ) -> None:
        """A statement; its result is like the first operand, where not said."""
        result = self.name()
        like = self.tensors[operands[0]] if operands else ("scalar", ())
        self.statements.append(f"{result} = {call.format(*operands)};")
        self.tensors[result] = (dtype or like[0], like[1] if shape is None else shape)

    def add_several(self, call: str, shapes: list[Shape], dtype: str) -> None:
        """A statement with an array of results."""
        names = [self.name() for _ in shapes]
        self.statements.append(f"[{', '.join(names)}] = {call};")
        self.tensors |= {n: (dtype, s) for n, s in zip(names, shapes, strict=True)}

    def axis(self, name: str) -> int:
        """Some axis of a tensor."""
        return self.random.randrange(len(self.shape(name)))

    # Steps

    def _external(self) -> None:
        rank = self.random.randint(1, 4)
        shape = tuple(self.random.choice((1, 2, 4, 6)) for _ in range(rank))
        dtype = self.random.choice(("scalar", "scalar", "scalar", "logical", "integer"))
        explicit = "" if dtype == "scalar" else f"<{dtype}>"
        self.add(f"external{explicit}(shape = {list(shape)})", dtype=dtype, shape=shape)
        self.inputs.append(list(self.tensors)[-1])

    def _variable(self) -> None:
        label = f"layer{self.fresh}/{self.random.choice(('w', 'b.1', 'a-b'))}"
        shape = (2, self.random.choice((1, 3)))
        call = f"variable(label = '{label}', shape = {list(shape)})"
        self.add(call, shape=shape)

    def _constant(self) -> None:
        count = self.random.randint(1, 3)
        values = ", ".join(self.random.choices(_SCALARS, k=count))
        self.add(f"constant(shape = [{count}], value = [{values}])", shape=(count,))

    def _unary(self) -> None:
        x = self.of("scalar")
        if x:
            self.add(f"{self.random.choice(_UNARY)}({{}})", x)

    def _binary(self) -> None:
        x = self.of("scalar")
        if x:
            y = self.random.choice((x, self.random.choice(_SCALARS)))
            self.add(f"{self.random.choice(_BINARY)}({{}}, {y})", x)

    def _compare(self) -> None:
        x = self.of("scalar")
        if x:
            y = self.random.choice((x, self.random.choice(_SCALARS)))
            self.add(f"{self.random.choice(_COMPARE)}({{}}, {y})", x, dtype="logical")

    def _logic(self) -> None:
        m = self.of("logical")
        if m:
            call = self.random.choice(("not({0})", "and({0}, {0})", "or({0}, true)"))
            self.add(call, m)

    def _select(self) -> None:
        m = self.of("logical")
        x = m and self.of("scalar", lambda s: s == self.shape(m))
        if m and x:
            self.add(f"select({m}, {{}}, {self.random.choice(_SCALARS)})", x)

    def _attribute(self) -> None:
        x = self.of("scalar")
        if x:
            value = self.random.choice(_SCALARS)
            axes = [self.axis(x)]
            call = self.random.choice(
                (
                    f"leaky_relu({{}}, alpha = {value})",
                    f"elu({{}}, alpha = {value})",
                    f"softmax({{}}, axes = {axes})",
                    f"l2_normalization({{}}, epsilon = {value}, axes = {axes})",
                    f"clamp({{}}, -1.0, {value})",
                    "clamp(a = 0.0, x = {}, b = 1.0)",
                )
            )
            self.add(call, x)

    def _reduce(self) -> None:
        x = self.of("scalar")
        if x:
            rank = len(self.shape(x))
            axes = sorted(self.random.sample(range(rank), self.random.randint(0, rank)))
            shape = tuple(1 if i in axes else e for i, e in enumerate(self.shape(x)))
            self.add(
                f"{self.random.choice(_REDUCE)}({{}}, axes = {axes})", x, shape=shape
            )

    def _moments(self) -> None:
        x = self.of("scalar")
        if x:
            axis, names = self.axis(x), (self.name(), self.name())
            left = self.random.choice(("{}, {}", "({}, {})")).format(*names)
            self.statements.append(f"{left} = moments({x}, axes = [{axis}]);")
            shape = tuple(1 if i == axis else e for i, e in enumerate(self.shape(x)))
            self.tensors |= dict.fromkeys(names, ("scalar", shape))

    def _transpose(self) -> None:
        x = self.any()
        axes = self.random.sample(range(len(self.shape(x))), len(self.shape(x)))
        shape = tuple(self.shape(x)[a] for a in axes)
        self.add(f"transpose({{}}, axes = {axes})", x, shape=shape)

    def _reshape(self) -> None:
        x = self.any()
        shape = self.shape(x)
        call = self.random.choice(("[-1]", "[0, -1]")) if shape else "[1]"
        volume = 1
        for extent in shape:
            volume *= extent
        result = (
            (volume,)
            if call == "[-1]"
            else (shape[0], volume // shape[0])
            if shape
            else (1,)
        )
        self.add(f"reshape({{}}, shape = {call})", x, shape=result)

    def _unsqueeze(self) -> None:
        x = self.any()
        axis = self.random.randint(0, len(self.shape(x)))
        if len(self.shape(x)) < 5:
            shape = (*self.shape(x)[:axis], 1, *self.shape(x)[axis:])
            self.add(f"unsqueeze({{}}, axes = [{axis}])", x, shape=shape)

    def _concat(self) -> None:
        x = self.any()
        if self.shape(x):
            axis, count = self.axis(x), self.random.randint(1, 3)
            shape = list(self.shape(x))
            shape[axis] *= count
            call = f"concat([{', '.join([x] * count)}], axis = {axis})"
            self.add(call, dtype=self.tensors[x][0], shape=tuple(shape))

    def _split(self) -> None:
        x = self.any()
        axes = [a for a, extent in enumerate(self.shape(x)) if extent % 2 == 0]
        if axes:
            axis = self.random.choice(axes)
            shape = list(self.shape(x))
            shape[axis] //= 2
            call = f"split({x}, axis = {axis}, ratios = [1, 1])"
            self.add_several(call, [tuple(shape)] * 2, self.tensors[x][0])

    def _unstack(self) -> None:
        x = self.any()
        if len(self.shape(x)) > 1:
            axis = self.axis(x)
            shape = tuple(e for a, e in enumerate(self.shape(x)) if a != axis)
            call = f"unstack({x}, axis = {axis})"
            self.add_several(call, [shape] * self.shape(x)[axis], self.tensors[x][0])

    def _slice(self) -> None:
        x = self.any()
        if self.shape(x):
            axis = self.axis(x)
            end = self.random.randint(1, self.shape(x)[axis])
            shape = tuple(end if a == axis else e for a, e in enumerate(self.shape(x)))
            call = f"slice({{}}, axes = [{axis}], begin = [0], end = [{end}])"
            self.add(call, x, shape=shape)

    def _pad(self) -> None:
        x = self.of("scalar")
        if x:
            pads = [
                (self.random.randint(0, 2), self.random.randint(0, 2))
                for _ in self.shape(x)
            ]
            shape = tuple(
                p + e + q for (p, q), e in zip(pads, self.shape(x), strict=True)
            )
            value = self.random.choice(_SCALARS)
            self.add(f"pad({{}}, padding = {pads}, value = {value})", x, shape=shape)

    def _cast(self) -> None:
        dtype = self.random.choice(("scalar", "integer", "logical"))
        self.add(f"cast<{dtype}>({{}})", self.any(), dtype=dtype)

    def _pool(self) -> None:
        x = self.of("scalar", lambda s: len(s) == 4)
        if x:
            size = [1, 1, *(self.random.choice((1, 2)) for _ in range(2))]
            name = self.random.choice(("max_pool", "avg_pool", "box", "rms_pool"))
            call = f"{name}({{}}, size = {size}, stride = {size}, border = 'constant')"
            shape = tuple(-(-e // s) for e, s in zip(self.shape(x), size, strict=True))
            self.add(call, x, shape=shape)


_STEPS: tuple[Callable[[Flat], None], ...] = (
    Flat._variable, Flat._constant, Flat._unary, Flat._unary, Flat._binary, Flat._binary,
    Flat._compare, Flat._logic, Flat._select, Flat._attribute, Flat._attribute,
    Flat._reduce, Flat._moments, Flat._transpose, Flat._reshape, Flat._unsqueeze,
    Flat._concat, Flat._split, Flat._unstack, Flat._slice, Flat._pad, Flat._cast,
    Flat._pool,
)  # fmt: skip


class Compositional:
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
