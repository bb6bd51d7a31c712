"""Draws the pictures of the documentation, each for light and for dark pages:

    python docs/pictures/draw.py

A test holds that the files are what this draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from xml.sax.saxutils import escape

FOLDER = Path(__file__).parent
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
SANS = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


@dataclass(frozen=True)
class Colors:
    """What a picture is drawn with: its text, what is less important, and what is
    computed forward and backward.
    """

    text: str
    faint: str
    forward: str
    backward: str
    on_fill: str = "#ffffff"


THEMES = {
    "light": Colors("#1d2733", "#8794a3", "#2f6db0", "#c8541b"),
    "dark": Colors("#e4e9f0", "#8b98a9", "#3f7fc4", "#d9692f"),
}
Shapes = Iterator[str]


def svg(width: int, height: int, title: str, shapes: Sequence[str]) -> str:
    """A picture of its shapes, a line each, with a title for those who do not see it."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
    )
    return "\n".join([head, f"<title>{escape(title)}</title>", *shapes, "</svg>\n"])


def text(x: float, y: float, words: str, color: str, **settings: object) -> str:
    """A line of text, centred at a place unless `anchor` says otherwise."""
    size, anchor = settings.get("size", 13), settings.get("anchor", "middle")
    font = MONO if settings.get("mono") else SANS
    return (
        f'<text x="{x:g}" y="{y:g}" font-family="{font}" font-size="{size}"'
        f' text-anchor="{anchor}" fill="{color}">{escape(words)}</text>'
    )


def box(x: float, y: float, width: float, height: float, fill: str, line: str) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4"'
        f' fill="{fill}" stroke="{line}" stroke-width="1.5"/>'
    )


def arrow(x1: float, y1: float, x2: float, y2: float, color: str) -> Shapes:
    """A horizontal or vertical line with a head at its end."""
    dx, dy = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
    back = (x2 - 8 * dx, y2 - 8 * dy)
    sides = [(back[0] + 4 * s * dy, back[1] + 4 * s * dx) for s in (1, -1)]
    points = " ".join(f"{x:g},{y:g}" for x, y in [(x2, y2), *sides])
    yield (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{back[0]:g}" y2="{back[1]:g}"'
        f' stroke="{color}" stroke-width="1.5"/>'
    )
    yield f'<polygon points="{points}" fill="{color}"/>'


# ---- A broadcast and its reduction ----

CELL = 34
ROWS, COLUMNS = 4, 3


def matrix(
    x: float,
    y: float,
    rows: int,
    fill: str,
    line: str,
    labels: Callable[[int, int], str],
    on: str,
) -> Shapes:
    """Cells in rows, each with its label."""
    for row in range(rows):
        for column in range(COLUMNS):
            left, top = x + column * CELL, y + row * CELL
            yield box(left + 1, top + 1, CELL - 2, CELL - 2, fill, line)
            yield text(
                left + CELL / 2,
                top + CELL / 2 + 4,
                labels(row, column),
                on,
                size=11,
                mono=True,
            )


def broadcast(colors: Colors) -> str:
    """Forward, a row is repeated; backward, the rows are summed."""
    ink, faint, ahead, back, on = (
        *(colors.text, colors.faint, colors.forward, colors.backward),
        colors.on_fill,
    )
    a, b, c = 70.0, 320.0, 570.0
    top, second = 50.0, 318.0
    middle = 1.5 * CELL
    width = COLUMNS * CELL

    def index(letter: str) -> Callable[[int, int], str]:
        return lambda row, column: f"{letter}{row + 1}{column + 1}"

    def only(letter: str) -> Callable[[int, int], str]:
        return lambda row, column: f"{letter}{column + 1}"

    def heading(y: float, words: str) -> str:
        return text(10, y, words, ink, size=15, anchor="start")

    def below(x: float, y: float, name: str, shape: str) -> Shapes:
        yield text(x + middle, y, name, ink, mono=True)
        yield text(x + middle, y + 17, shape, faint, size=12)

    def forward() -> Shapes:
        yield heading(24, "Forward: the row is used in every row")
        yield from matrix(a, top, 1, ahead, ahead, only("a"), on)
        yield from matrix(a, top + CELL, ROWS - 1, "none", faint, only("a"), faint)
        yield from matrix(b, top, ROWS, ahead, ahead, index("b"), on)
        yield from matrix(c, top, ROWS, ahead, ahead, index("c"), on)
        yield text(
            (a + width + b) / 2,
            top + 2 * CELL + 6,
            "\N{MULTIPLICATION SIGN}",
            ink,
            size=22,
        )
        yield text((b + width + c) / 2, top + 2 * CELL + 6, "=", ink, size=22)
        end = top + ROWS * CELL + 20
        yield from below(a, end, "a", "[1, 3], repeated to [4, 3]")
        yield from below(b, end, "b", "[4, 3]")
        yield from below(c, end, "c = mul(a, b)", "[4, 3]")

    def backward() -> Shapes:
        yield heading(second - 26, "Backward: what was repeated is summed")
        yield from matrix(c, second, ROWS, back, back, index("dc"), on)
        yield from matrix(b, second, ROWS, "none", back, index("p"), back)
        yield from matrix(a, second + 1.5 * CELL, 1, back, back, only("da"), on)
        y = second + 2 * CELL
        yield from arrow(c - 14, y, b + width + 14, y, ink)
        yield text((b + width + c) / 2, y - 12, "times b", ink, size=12)
        yield from arrow(b - 14, y, a + width + 14, y, ink)
        yield text((a + width + b) / 2, y - 12, "sum of rows", ink, size=12)
        end = second + ROWS * CELL + 20
        yield from below(c, end, "grad_c", "[4, 3]")
        yield from below(b, end, "mul(grad_c, b)", "[4, 3]")
        yield from below(a, end, "sum_reduce(…, axes = [0])", "grad_a: [1, 3]")

    title = (
        "A row is broadcast over the rows of a matrix; backward, the gradient is summed"
        " over these rows"
    )
    return svg(720, 500, title, [*forward(), *backward()])


# ---- The pipeline ----

# What a stage makes; which room makes it of what comes before, and how. The model is above
# its gradients: forward to the right, backward to the left.
STAGES = (
    ("text", "model.nnef", "", ""),
    ("syntax tree", "names and types checked", "language/", "parse, check"),
    ("flat graph", "every shape is known", "emit/", "evaluate, emit"),
    ("backward graph", "standard NNEF", "autodiff/", "differentiate"),
    ("lowered graph", "what a runtime supports", "targets/", "lower"),
    ("text", "model_bwd.nnef", "graph/", "print"),
)
STAGE = (176, 58)
GAP, DROP = 112, 74


def pipeline(colors: Colors) -> str:
    """The stages of the compiler, from text to text."""
    width, height = STAGE

    def place(stage: int) -> tuple[int, int]:
        column = stage if stage < BACKWARD else len(STAGES) - 1 - stage
        return 10 + column * (width + GAP), 10 + (stage >= BACKWARD) * (height + DROP)

    def stages() -> Shapes:
        for i, (name, note, _, _) in enumerate(STAGES):
            (x, y), color = (
                place(i),
                colors.backward if i >= BACKWARD else colors.forward,
            )
            yield box(x, y, width, height, color, color)
            yield text(x + width / 2, y + 25, name, colors.on_fill, size=15)
            yield text(x + width / 2, y + 44, note, colors.on_fill, size=12)

    def steps() -> Shapes:
        for i, (_, _, room, verb) in enumerate(STAGES[1:], start=1):
            (x1, y1), (x2, y2) = place(i - 1), place(i)
            if y1 < y2:
                middle = x1 + width / 2
                yield from arrow(middle, y1 + height + 5, middle, y2 - 5, colors.faint)
                yield text(
                    middle - 10,
                    y2 - DROP / 2,
                    room,
                    colors.text,
                    mono=True,
                    anchor="end",
                )
                yield text(
                    middle + 10, y2 - DROP / 2, verb, colors.faint, anchor="start"
                )
                continue
            start, end = (
                (x1 + width + 5, x2 - 5) if x1 < x2 else (x1 - 5, x2 + width + 5)
            )
            y, middle = y1 + height / 2, (start + end) / 2
            yield from arrow(start, y, end, y, colors.faint)
            yield text(middle, y - 9, room, colors.text, mono=True)
            yield text(middle, y + 19, verb, colors.faint, size=12)

    title = (
        "Text is parsed and checked, built into a flat graph, differentiated, lowered for a"
        " runtime, and printed"
    )
    size = 3 * width + 2 * GAP + 20, 2 * height + DROP + 20
    return svg(*size, title, [*stages(), *steps()])


# The first stage of the backward graph.
BACKWARD = 3


# ---- Three uses ----

# From top to bottom: a model, the command that differentiates it, its result, a runtime.
# Narrow, for phones.
FALL = 46
USES = {
    "device": (
        ("model/", "from PyTorch"),
        "nnef-grad-step",
        ("step/", "loss and optimizer in it"),
        ("tract", "trains on a device"),
    ),
    "file": (
        ("model.onnx", "not written by you"),
        "nnef-grad",
        ("model_bwd.onnx", "one output per gradient"),
        ("ONNX Runtime", "computes the gradients"),
    ),
    "converter": (
        ("your graph", "NNEF text or ONNX"),
        "differentiate",
        ("backward graph", "NNEF text or ONNX"),
        ("your runtime", "needs no autograd"),
    ),
}


def use(colors: Colors, name: str) -> str:
    """A model, its gradients, and the runtime that computes them."""
    width, height = STAGE
    model, verb, result, runtime = USES[name]
    fills = colors.forward, colors.backward, "none"
    inks = colors.on_fill, colors.on_fill, colors.text

    middle = 10 + width / 2

    def shapes() -> Shapes:
        for i, (title, note) in enumerate((model, result, runtime)):
            y = 10 + i * (height + FALL)
            line = colors.faint if fills[i] == "none" else fills[i]
            yield box(10, y, width, height, fills[i], line)
            yield text(middle, y + 25, title, inks[i], size=15)
            yield text(middle, y + 44, note, inks[i], size=12)
            if i:
                yield from arrow(middle, y - FALL + 5, middle, y - 5, colors.faint)
                words = verb if i == 1 else "run"
                place = middle + 12, y - FALL / 2 + 2
                yield text(*place, words, colors.text, mono=True, anchor="start")

    title = f"{model[0]}, by {verb}, becomes {result[0]}, for {runtime[0]}"
    return svg(230, 3 * height + 2 * FALL + 20, title, [*shapes()])


PICTURES: dict[str, Callable[[Colors], str]] = {
    "broadcast": broadcast,
    "pipeline": pipeline,
    **{f"use-{name}": partial(use, name=name) for name in USES},
}


def by_file(pictures: Mapping[str, Callable[[Colors], str]]) -> dict[Path, str]:
    """Every picture of a table, by its file."""
    return {
        FOLDER / f"{name}-{theme}.svg": draw(colors)
        for name, draw in pictures.items()
        for theme, colors in THEMES.items()
    }


def drawn() -> dict[Path, str]:
    """Every picture, by its file."""
    return by_file(PICTURES)


if __name__ == "__main__":
    for path, picture in drawn().items():
        path.write_text(picture, "utf-8")
