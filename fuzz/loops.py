"""Random documents in tract's dialect with a loop, whose batch and whose number of steps are
symbols; some of them with mistakes.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from fuzz.documents import MUTATIONS, TOKEN
from fuzz.inputs import Input

FEATURES, HIDDEN = 3, 2
HEAD = """\
version 1.0;
extension tract_registry tract_core;
extension tract_symbol B;
extension tract_symbol T;
"""


class Scanned(NamedTuple):
    """An input that is scanned.

    Attributes:
        name: its name; its part in the body is that and an `s`.
        axis: the axis, 0 or 1; the other one is the batch.
        chunk: how many elements are a part, negative from the last to the first.
    """

    name: str
    axis: int
    chunk: int

    @property
    def features(self) -> int:
        return FEATURES * abs(self.chunk)


def along(axis: int, batch: str, extent: str) -> str:
    """The first two extents of what goes along an axis."""
    return ", ".join([extent, batch] if axis == 0 else [batch, extent])


# ---- The body ----

# What may be in the place of `a` and `b` is a tensor for each of the batch. None of these
# grows with the number of steps.
_UNARY = [
    *["tanh({a})", "sigmoid({a})", "relu({a})", "abs({a})", "neg({a})", "sin({a})"],
    *["softmax({a}, axes = [1])", "rcp({a} * {a} + 1.0)", "({a} * 0.5)", "copy({a})"],
    *["sqrt({a} * {a} + 0.1)", "matmul({a}, u)", "({a} - 0.25)", "tanh(sqr({a}))"],
    *["tanh({a} + v)", "mean_reduce({a}, axes = [1])", "exp(-abs({a}))"],
]
_BINARY = [
    *[
        "({a} + {b})",
        "({a} - {b})",
        "tanh({a} * {b})",
        "max({a}, {b})",
        "min({a}, {b})",
    ],
    *["select({a} > 0.0, {a}, {b})", "({a} / ({b} * {b} + 1.0))"],
    *["select({a} < {b}, {a} * 0.5, {b})"],
]


def _body(rng: Random, known: list[str], count: int) -> list[str]:
    """Statements on some tensors; their results are known after them."""
    lines = []
    for number in range(count):
        form = rng.choice([*_UNARY, *_BINARY, *_BINARY])
        value = form.format(a=rng.choice(known), b=rng.choice(known))
        # The mean over an axis has one element along it, and broadcasts again.
        lines.append(f"a{number} = {value} + zero;")
        known.append(f"a{number}")
    return lines


# ---- What goes in and out ----


def _scanned(rng: Random) -> list[Scanned]:
    return [
        Scanned(name, rng.choice([0, 1]), rng.choice([1, 1, 1, -1, -1, 2, -2, 3]))
        for name in ["x", "z"][: rng.choice([1, 1, 2])]
    ]


class Collected(NamedTuple):
    """A result of the loop.

    Attributes:
        name: what it is called after the loop.
        lines: the statements in the body that make what is collected.
        entry: how it is collected.
        result: the result of the body.
    """

    name: str
    lines: list[str]
    entry: str
    result: str


def _full(rng: Random, number: int, known: list[str]) -> Collected:
    """A row, or several, of each step."""
    axis, count = rng.choice([0, 1]), rng.choice([1, 1, 1, 2])
    rows = [f"unsqueeze({rng.choice(known)}, axes = [{axis}])" for _ in range(count)]
    joined = rows[0] if count == 1 else f"concat([{', '.join(rows)}], axis = {axis})"
    chunk = count if count > 1 and rng.random() < 0.95 else rng.choice([count, -count])
    name = f"row{number}"
    entry = f"('{name}', 'full', {axis}, {chunk})"
    return Collected(f"y{number}", [f"{name} = {joined};"], entry, name)


def _last(state: str) -> Collected:
    return Collected(
        f"last_{state}", [], f"('new_{state}', 'last', 0, 1)", f"new_{state}"
    )


def _first(rng: Random, state: str, batch: str) -> tuple[str, bool]:
    """How a state begins: as an input, as what has been learned, or as a constant; and
    whether it is an input.
    """
    shape = f"[{batch}, {HIDDEN}]"
    learned = f"variable(label = 'first/{state}', shape = [1, {HIDDEN}])"
    forms = [
        (f"{state} = tract_core_external(shape = {shape}, datum_type = 'f32');", True),
        (
            f"f{state} = {learned};\n    {state} = tile(f{state}, repeats = [{batch}, 1]);",
            False,
        ),
    ]
    return rng.choice([*forms, forms[0]])


def document(rng: Random) -> str:
    """A network that is a loop, and a little after it."""
    batch = rng.choice(["B", "B", "B", "2"])
    steps = rng.choice(["T", "T", "T", "T", "4"])
    scanned, states = _scanned(rng), ["h", "c", "d"][: rng.choice([1, 1, 2, 3])]
    known = [*states]
    lines = [f"zero = {states[0]} * 0.0;"]
    for one in scanned:
        order = "0, 1, 2" if one.axis == 1 else "1, 0, 2"
        lines += [
            f"{one.name}t = transpose({one.name}s, axes = [{order}]);",
            f"{one.name}r = reshape({one.name}t, shape = [{batch}, {one.features}]);",
            f"{one.name}p = matmul({one.name}r, w{one.name});",
        ]
        known.append(f"{one.name}p")
    lines += _body(rng, known, rng.randint(1, 6))
    lines += [
        f"new_{s} = tanh({rng.choice(known)} + {rng.choice(known)});" for s in states
    ]
    results = [_full(rng, i, known) for i in range(rng.choice([0, 1, 1, 2]))]
    results += [_last(state) for state in states if rng.random() < 0.7]
    results = results or [_last(states[0])]
    rng.shuffle(results)
    lines += [line for one in results for line in one.lines]
    return _written(rng, (batch, steps), scanned, states, lines, results)


def _written(
    rng: Random,
    extents: tuple[str, str],
    scanned: list[Scanned],
    states: list[str],
    body: list[str],
    results: list[Collected],
) -> str:
    batch, steps = extents
    weights = {"u": (HIDDEN, HIDDEN), "v": (1, HIDDEN)}
    weights |= {f"w{one.name}": (one.features, HIDDEN) for one in scanned}
    firsts = {state: _first(rng, state, batch) for state in states}
    inputs = [*(s.name for s in scanned), *(s for s, f in firsts.items() if f[1])]
    declared = [
        f"{one.name} = tract_core_external(shape = "
        f"[{along(one.axis, batch, f'{abs(one.chunk)} * {steps}')}, {FEATURES}],"
        " datum_type = 'f32');"
        for one in scanned
    ]
    declared += [
        f"{n} = variable(label = '{n}', shape = {[*s]});" for n, s in weights.items()
    ]
    declared += [text for text, _ in firsts.values()]
    names = [*(f"{one.name}s" for one in scanned), *states, *weights]
    parameters = ", ".join(f"{name}: tensor<scalar>" for name in names)
    # Those that become states are in the order of the states.
    made = [*(one.result for one in results if one.lines)]
    made[(place := rng.randint(0, len(made))) : place] = [f"new_{s}" for s in states]
    returned = ", ".join(f"{name}: tensor<scalar>" for name in made)
    scan = ", ".join(f"('{o.name}s', {o.name}, {o.axis}, {o.chunk})" for o in scanned)
    full = ", ".join(f"('{name}', {name})" for name in weights)
    state = ", ".join(f"('{s}', {s}, 'new_{s}')" for s in states)
    output = ", ".join(one.entry for one in results)
    targets = ", ".join(one.name for one in results)
    call = (
        f"{targets} = tract_core_scan(body = 'cell', scan = [{scan}], full = [{full}],"
        f" state = [{state}], output = [{output}]);"
    )
    after = [f"out_{r.name} = {rng.choice(_AFTER).format(r.name)};" for r in results]
    outputs = ", ".join(f"out_{r.name}" for r in results)
    return (
        f"{HEAD}\nfragment cell( {parameters} ) -> ( {returned} )\n{_lines(body)}\n"
        f"graph net( {', '.join(inputs)} ) -> ( {outputs} )\n"
        f"{_lines([*declared, call, *after])}"
    )


def _lines(statements: list[str]) -> str:
    return "{\n" + "".join(f"    {line}\n" for line in statements) + "}\n"


_AFTER = ["copy({})", "tanh({})", "{0} * {0}", "{} * 2.0"]


# ---- The input ----


def _whole(_: Random, text: str) -> bytes:
    return text.encode()


def _mutated(rng: Random, text: str) -> bytes:
    pieces = TOKEN.findall(text)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        rng.choice(MUTATIONS)(rng, pieces)
    return "".join(pieces).encode("utf-8", "surrogatepass")


_FORMS: list[Callable[[Random, str], bytes]] = [_whole, _whole, _mutated]


def loop(rng: Random) -> Input:
    """A loop, and two numbers for each of its symbols."""
    data = rng.choice(_FORMS)(rng, document(rng))
    numbers = [
        {"B": batch, "T": steps}
        for batch, steps in zip(
            rng.sample([1, 2, 3], 2), rng.sample([1, 2, 3, 5], 2), strict=True
        )
    ]
    wrt = rng.choice(["all", "all", "inputs", "variables"])
    return Input(data, {"loop": {"numbers": numbers, "wrt": wrt}})
