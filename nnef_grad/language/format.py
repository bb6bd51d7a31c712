"""The formatter: the canonical layout of a document. Only white space changes; words
and comments keep their order.

- A statement, a signature, `{` and `}` each have a line. Statements are indented by 4.
- Between words there is one space, or none: the table of roles below says where.
- A statement of more than 100 columns continues on lines indented by 8. It is broken
  after a comma or before an operator, in the outermost bracket that has one, as far to
  the right as fits. A line without such a place stays long.
- A signature of more than 100 columns has `-> (...)` on a line of its own. If that is
  still too long, each parameter of a fragment gets a line, and the names of a graph
  fill lines.
- A comment stays on its line, or after its word. It ends the line, so that a list with
  a comment in it is broken there.
- Blank lines stay: at most one within a body, at most two outside it, none beside a
  brace or within a statement. There is at least one before the graph, below the head,
  and below a fragment with a body.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import NamedTuple

from nnef_grad.errors import NnefSyntaxError
from nnef_grad.language.lexical import INDENT, WIDTH
from nnef_grad.language.parser import parse_document, parse_fragments
from nnef_grad.source import Source

HANGING = 2 * INDENT


def format_text(source: Source) -> str:
    """The canonical layout of a document, or of a file of fragments.

    Raises:
        NnefGradError: the text is neither.
    """
    _check(source)
    return "\n".join(_lines(_units(_words(source.text)))) + "\n"


def _check(source: Source) -> None:
    """Raises the error of the reading that gets further, for a text that is neither."""
    try:
        parse_document(source)
    except NnefSyntaxError as error:
        try:
            fragments = parse_fragments(source)
        except NnefSyntaxError as other:
            raise max(error, other, key=_reach) from None
        if not fragments:
            raise


def _reach(error: NnefSyntaxError) -> int:
    return error.span.start if error.span else 0


# ---- Words and comments ----

# The terminals of the grammar, and the text that it ignores.
_LEXEME = re.compile(
    r"""
      (?P<space>   [ \t\r\n\f\v]+ )
    | (?P<comment> \#[^\r\n\f]* )
    | (?P<dtype>   <\s*(?:integer|scalar|logical|string|\?)\s*> )
    | (?P<word>    [A-Za-z_][A-Za-z0-9_]*
                 | [0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?
                 | '(?:[^'\\\r\n]|\\.)*' | "(?:[^"\\\r\n]|\\.)*" )
    | (?P<symbol>  -> | <= | >= | == | != | \|\| | && | . )
    """,
    re.VERBOSE,
)
_LINE_END = re.compile(r"\r\n|[\r\n\f]")
_SPACE = re.compile(r"[ \t\r\n\f\v]+")


class _Comment(NamedTuple):
    """A comment on a line of its own, and the number of blank lines before it."""

    text: str
    blank: int


@dataclass(slots=True)
class _Word:
    """A word with the comments above and after it, and the blank lines before it.

    A line may be broken before a word that has a `level`, preferably a low one.
    """

    text: str
    role: str
    blank: int = 0
    above: list[_Comment] = field(default_factory=list)
    after: str = ""
    level: int | None = None


def _words(text: str) -> Iterator[_Word]:
    """The words, each with its comments; the last one is empty, and holds the comments
    at the end.
    """
    word, above, ends = _Word("", ""), list[_Comment](), 1
    for match in _LEXEME.finditer(text):
        kind, lexeme = match.lastgroup or "", match[0]
        if kind == "space":
            ends += len(_LINE_END.findall(lexeme))
            continue
        if kind == "comment" and ends == 0:
            word.after = "  " + lexeme.rstrip()
        elif kind == "comment":
            above.append(_Comment(lexeme.rstrip(), ends - 1))
        else:
            yield from _complete(word)
            word, above = _Word(lexeme, kind, max(ends - 1, 0), above), []
        ends = 0
    yield from _complete(word)
    yield _Word("", "end", 0, above)


def _complete(word: _Word) -> Iterator[_Word]:
    """The word, complete now that the next one was found; nothing before the first."""
    if word.role == "dtype":
        word.text = _SPACE.sub("", word.text)
    if word.text:
        yield word


# ---- Units: parts that begin on a line of their own ----


class _Unit(NamedTuple):
    kind: str
    words: list[_Word]


_KINDS = {
    "version": "head",
    "extension": "head",
    "fragment": "signature",
    "graph": "signature",
    "{": "{",
    "}": "}",
    "": "end",
}


def _units(words: Iterable[_Word]) -> Iterator[_Unit]:
    gathered: list[_Word] = []
    for word in words:
        if word.text == "{":
            yield _unit(gathered)
            gathered = []
        gathered.append(word)
        if word.text in ("{", "}", ";", ""):
            yield _unit(gathered)
            gathered = []


def _unit(words: list[_Word]) -> _Unit:
    kind = _KINDS.get(words[0].text, "statement")
    _assign_roles(kind, words)
    return _Unit(kind, words)


# ---- Roles: the function of a word in its place, which determines the spaces ----

_ENDS_OPERAND = {"word", "dtype", "close", "wide close", "right angle"}
_NO_SPACE_BEFORE = {
    "call",
    "wide call",
    "close",
    "punctuation",
    "colon",
    "range",
    "dtype",
    "left angle",
    "right angle",
}
_NO_SPACE_AFTER = {"open", "call", "range", "sign", "left angle"}

# A line may be broken before these.
_OPERATORS = {"+", "-", "*", "/", "^", "||", "&&", "if", "else", "yield"}
_OPERATORS |= {"<", ">", "<=", ">=", "==", "!="}


class _Place(NamedTuple):
    """A word and its surroundings, which determine its role."""

    word: _Word
    before: _Word
    after: _Word
    depth: int
    signature: bool

    @property
    def follows_operand(self) -> bool:
        return self.before.role in _ENDS_OPERAND

    @property
    def is_wide(self) -> bool:
        """Whether it is in a list of a signature, which has spaces in its parentheses."""
        return self.signature and self.depth == 0


def _opening(place: _Place) -> str:
    role = "call" if place.follows_operand else "open"
    return f"wide {role}" if place.is_wide and place.after.text != ")" else role


def _closing(place: _Place) -> str:
    wide = place.is_wide and place.before.role != "call"
    return "wide close" if wide else "close"


def _colon(place: _Place) -> str:
    return "colon" if place.signature and place.depth == 1 else "range"


def _sign(place: _Place) -> str:
    return "symbol" if place.follows_operand else "sign"


def _left_angle(place: _Place) -> str:
    return "left angle" if place.after.text in ("?", ">") else "symbol"


def _right_angle(place: _Place) -> str:
    angle = place.is_wide or place.before.role == "left angle"
    return "right angle" if angle else "symbol"


_Role = Callable[[_Place], str]


def _always(role: str) -> _Role:
    return lambda _: role


_ROLES: dict[str, _Role] = {
    "version": _always("symbol"),
    "extension": _always("symbol"),
    "fragment": _always("symbol"),
    "graph": _always("symbol"),
    "for": _always("symbol"),
    "in": _always("symbol"),
    "if": _always("symbol"),
    "else": _always("symbol"),
    "yield": _always("symbol"),
    "(": _opening,
    "[": _opening,
    ")": _closing,
    "]": _closing,
    ":": _colon,
    "+": _sign,
    "-": _sign,
    "<": _left_angle,
    ">": _right_angle,
    "!": _always("sign"),
    "?": _always("word"),
    ",": _always("punctuation"),
    ";": _always("punctuation"),
}


def _assign_roles(kind: str, words: list[_Word]) -> None:
    """Assigns roles from left to right. The targets of an assignment count as more
    deeply nested than its value, which is broken first.
    """
    depth, before, end = 0, _Word("", ""), _Word("", "")
    targets = kind == "statement"
    for word, after in zip_longest(words, words[1:], fillvalue=end):
        depth -= word.text in (")", "]")
        place = _Place(word, before, after, depth, kind == "signature")
        word.role = _ROLES.get(word.text, _as_read)(place)
        word.level = _level(place, depth + 2 * targets)
        depth += word.text in ("(", "[")
        targets = targets and word.text != "="
        before = word


def _as_read(place: _Place) -> str:
    return place.word.role


def _level(place: _Place, depth: int) -> int | None:
    """The level of a break: after a comma before an operator, outside before inside."""
    if place.before.text == ",":
        return 2 * depth
    if place.word.role == "wide close":
        return 2 * depth + 2
    breaks = place.word.role == "symbol" and place.word.text in _OPERATORS
    return 2 * depth + 1 if breaks else None


def _gap(before: _Word, word: _Word) -> str:
    tight = before.role in _NO_SPACE_AFTER or word.role in _NO_SPACE_BEFORE
    return "" if tight else " "


# ---- Lines ----


def _lines(units: Iterable[_Unit]) -> Iterator[str]:
    before = "start"
    for unit in units:
        yield from _leading(unit, before)
        yield from _LAYOUTS[unit.kind](unit.words)
        before = unit.kind


def _leading(unit: _Unit, before: str) -> Iterator[str]:
    """The comments above a unit, taken from its first word, and the blank lines."""
    first = unit.words[0]
    lines = [*first.above, _Comment("", first.blank)]
    first.above = []
    blanks = [_blank(line.blank, unit.kind) for line in lines]
    if before in ("start", "{"):
        blanks[0] = 0
    if unit.kind in ("{", "}", "end"):
        blanks[-1] = 0
    if _needs_blank(unit, before) and not any(blanks):
        blanks[0] = 1
    margin = INDENT if unit.kind in ("statement", "}") else ""
    for line, blank in zip(lines, blanks, strict=True):
        yield from [""] * blank
        if line.text:
            yield margin + line.text


def _needs_blank(unit: _Unit, before: str) -> bool:
    """Whether a blank line must come before: only declarations may follow directly."""
    declared = before == "signature" and unit.words[0].text == "fragment"
    return unit.kind == "signature" and before != "start" and not declared


def _blank(lines: int, kind: str) -> int:
    return min(lines, _MOST_BLANK_LINES.get(kind, 2))


_MOST_BLANK_LINES = {"statement": 1, "{": 0, "}": 1}


def _signature(words: list[_Word]) -> Iterator[str]:
    """A signature, on one line if possible, else on two, else with its lists broken."""
    if _fits(words):
        yield from _lay(words, "")
        return
    arrow = next(i for i, word in enumerate(words) if word.text == "->")
    for half in (words[:arrow], words[arrow:]):
        yield from _half(half, names=words[0].text == "graph")


def _half(words: list[_Word], *, names: bool) -> Iterator[str]:
    """A signature up to its arrow, or from there on."""
    if _fits(words) and not names:
        yield from _lay(words, "")
        return
    opening = next(i for i, word in enumerate(words) if word.text == "(") + 1
    yield from _lay(words[:opening], "")
    items = words[opening:]
    for item in [items] if names else _split(items):
        yield from _lay(item, INDENT, INDENT if names else HANGING)


_PARAMETERS = 2  # the level of the commas between them


def _split(words: list[_Word]) -> Iterator[list[_Word]]:
    """The parameters, each with the comma or the parenthesis after it."""
    start = 0
    for index, (before, word) in enumerate(pairwise(words), 1):
        if before.text == "," and word.level == _PARAMETERS:
            yield words[start:index]
            start = index
    yield words[start:]


def _fits(words: list[_Word]) -> bool:
    return len(list(_runs(words))) == 1 and _width(words) <= WIDTH


def _width(words: list[_Word]) -> int:
    gaps = sum(len(_gap(*pair)) for pair in pairwise(words))
    return gaps + sum(len(word.text) for word in words)


def _lay(words: list[_Word], margin: str, hanging: str = "") -> Iterator[str]:
    """The lines of words that belong together; a comment among them ends a line. A
    bracket closed after a comment is aligned with the first line.
    """
    indent = margin
    for run in _runs(words):
        yield from (indent + comment.text for comment in run[0].above)
        closes = run[0].role in ("close", "wide close")
        *lines, last = _fill(run, margin if closes else indent, hanging)
        yield from lines
        yield last + run[-1].after
        indent = hanging


def _runs(words: list[_Word]) -> Iterator[list[_Word]]:
    """The words between one comment and the next."""
    start = 0
    for index, (before, word) in enumerate(pairwise(words), 1):
        if before.after or word.above:
            yield words[start:index]
            start = index
    yield words[start:]


def _fill(words: list[_Word], margin: str, hanging: str) -> Iterator[str]:
    start = 0
    while start < len(words):
        end = _line_end(words, start, WIDTH - len(margin))
        yield margin + _join(words[start:end])
        start, margin = end, hanging


def _line_end(words: list[_Word], start: int, room: int) -> int:
    """The index of the next line: the last of the outermost breaks that let this line
    fit, otherwise the first possible break.
    """
    best, level, width = len(words), math.inf, len(words[start].text)
    for index in range(start + 1, len(words)):
        if width > room and level < math.inf:
            return best
        word = words[index]
        if word.level is not None and word.level <= level:
            best, level = index, word.level
        width += len(_gap(words[index - 1], word)) + len(word.text)
    return best if width > room else len(words)


def _join(words: list[_Word]) -> str:
    gaps = [_gap(*pair) for pair in pairwise(words)]
    return words[0].text + "".join(
        g + w.text for g, w in zip(gaps, words[1:], strict=True)
    )


_LAYOUTS: dict[str, Callable[[list[_Word]], Iterator[str]]] = {
    "head": lambda words: _lay(words, "", INDENT),
    "signature": _signature,
    "{": lambda words: _lay(words, ""),
    "statement": lambda words: _lay(words, INDENT, HANGING),
    "}": lambda words: _lay(words, ""),
    "end": lambda words: iter(()),
}
