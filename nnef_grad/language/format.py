"""The formatter: the canonical layout of a document. Only white space changes; words
and comments keep their order.

- A statement, a signature, `{` and `}` each have a line. Statements are indented by 4.
- Between words there is one space, or none: the role of a word says where.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from nnef_grad.base.errors import NnefSyntaxError
from nnef_grad.base.source import Source
from nnef_grad.language.parser import parse_document, parse_fragments
from nnef_grad.language.syntax import INDENT, WIDTH

HANGING = 2 * INDENT


def format_text(source: Source) -> str:
    """The canonical layout of a document, or of a file of fragments."""
    try:
        # Names of any text are tract's, and its extension lines are not all names.
        text = _EXTENSION.sub(lambda line: " " * len(line[0]), source.text)
        parse_document(source, text, extended=True)
    except NnefSyntaxError as error:
        try:
            fragments = parse_fragments(source)
        except NnefSyntaxError as other:
            # That of the reading that gets further.
            errors = error, other
            raise max(errors, key=lambda e: e.problems[0].position()) from None
        if not fragments:
            raise
    return "\n".join(_lines(_words(source.text))) + "\n"


# ---- Words and comments ----

# What tract writes after a name: `tract_assert T >= 0`, `tract_symbol p2o.DynamicDimension.0`.
_EXTENSION = re.compile(r"^[ \t]*extension[ \t]+tract_\w+[ \t][^;\r\n]*;", re.MULTILINE)

# The terminals of the grammar, and the text that it ignores.
_LEXEME = re.compile(
    r"""
      (?P<end>     \r\n | [\r\n\f] )
    | (?P<names>   (?<=\bextension) [ \t\v]+ [^\s;\#][^;\#\r\n\f]* )
    | (?P<space>   [ \t\v]+ )
    | (?P<comment> \#[^\r\n\f]* )
    | (?P<suffix>  <\s*(?:integer|scalar|logical|string|\?)\s*> )
    | (?P<word>    i?(?:"(?:[^"\\]|\\[\s\S])*"|'(?:[^'\\]|\\[\s\S])*')
                 | [A-Za-z_][A-Za-z0-9_]*
                 | [0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)? )
    | (?P<symbol>  -> | <= | >= | == | != | \|\| | && | . )
    """,
    re.VERBOSE,
)
_SPACE = re.compile(r"[ \t\r\n\f\v]+")


class _Comment(NamedTuple):
    """A comment on a line of its own, and the number of blank lines before it."""

    text: str
    blank: int


@dataclass(slots=True)
class _Word:
    """A word with the blank lines and comments above it, and the comment after it.

    The `gap` is the space before it on a line. A line may be broken before a word that
    has a `level`, preferably a low one.
    """

    text: str
    role: str
    blank: int
    above: list[_Comment]
    after: str = ""
    gap: str = ""
    level: int | None = None


_NO_WORD = _Word("", "", 0, [])


def _words(text: str) -> list[_Word]:
    """The words; the last one is empty, and holds the comments at the end."""
    words, above, ends = list[_Word](), list[_Comment](), 1
    for match in _LEXEME.finditer(text):
        kind, lexeme = match.lastgroup or "", match[0]
        if kind in ("end", "space"):
            ends += kind == "end"
            continue
        if kind == "comment" and ends == 0:
            words[-1].after = "  " + lexeme.rstrip()
        elif kind == "comment":
            above.append(_Comment(lexeme.rstrip(), ends - 1))
        else:
            written = _SPACE.sub("", lexeme) if kind == "suffix" else lexeme
            if kind == "names":
                names = lexeme.split(",")
                written, kind = ", ".join(" ".join(n.split()) for n in names), "word"
            words.append(_Word(written, kind, max(ends - 1, 0), above))
            above = []
        ends = 0
    return [*words, _Word("", "", 0, above)]


# ---- Units: parts that begin on a line of their own ----

_KINDS = {"version": "head", "extension": "head"}
_KINDS |= {"fragment": "signature", "graph": "signature", "{": "{", "}": "}", "": "end"}


def _begins_unit(before: _Word, word: _Word) -> bool:
    return word.text == "{" or before.text in ("{", "}", ";")


def _split(
    words: list[_Word], begins: Callable[[_Word, _Word], bool]
) -> Iterator[list[_Word]]:
    """The parts of some words, given which word begins a part after which other one."""
    start = 0
    for index, (before, word) in enumerate(pairwise(words), 1):
        if begins(before, word):
            yield words[start:index]
            start = index
    yield words[start:]


# ---- Roles: the function of a word in its place, which determines the spaces ----

# A `suffix` ends an operand without a gap before it, like `<scalar>`; nothing is beside
# a `tight` word, like the colon of a range.
_SYMBOLS = {"version", "extension", "fragment", "graph", "for", "in", "if", "else"}
_SYMBOLS |= {"yield"}
_ENDS_OPERAND = {"word", "suffix", "close", "wide close"}
_NO_GAP_BEFORE = {"call", "wide call", "close", "punctuation", "tight", "suffix"}
_NO_GAP_AFTER = {"open", "call", "tight", "sign"}

# A line may be broken before these.
_OPERATORS = {"+", "-", "*", "/", "^", "||", "&&", "if", "else", "yield"}
_OPERATORS |= {"<", ">", "<=", ">=", "==", "!="}


def _place(words: list[_Word], kind: str) -> None:
    """Sets the roles, gaps and levels of the words of a unit, from left to right. A
    break after a comma is better than one before an operator, and outside than inside.
    The targets of an assignment count as more deeply nested than its value.
    """
    depth, before, is_target = 0, _NO_WORD, kind == "statement"
    for word, after in zip(words, [*words[1:], _NO_WORD], strict=True):
        depth -= word.text in (")", "]")
        nesting = depth if kind == "signature" else None
        word.role = _role(word, before, after, nesting)
        tight = before.role in _NO_GAP_AFTER or word.role in _NO_GAP_BEFORE
        word.gap = "" if tight else " "
        level = 2 * depth + 4 * is_target
        if before.text == ",":
            word.level = level
        elif word.role == "symbol" and word.text in _OPERATORS:
            word.level = level + 1
        elif word.role == "wide close":
            word.level = level + 2
        depth += word.text in ("(", "[")
        is_target = is_target and word.text != "="
        before = word


def _role(word: _Word, before: _Word, after: _Word, nesting: int | None) -> str:
    """The role of a word; the outer parentheses of a signature have spaces inside."""
    follows_operand = before.role in _ENDS_OPERAND
    is_wide = nesting == 0
    match word.text:
        case "(" | "[":
            role = "call" if follows_operand else "open"
            return f"wide {role}" if is_wide and after.text != ")" else role
        case ")" | "]":
            return "wide close" if is_wide and before.role != "call" else "close"
        case ":":
            return "punctuation" if nesting == 1 else "tight"
        case "+" | "-":
            return "symbol" if follows_operand else "sign"
        case "<":
            return "tight" if after.text in ("?", ">") else "symbol"
        case ">":
            return "suffix" if is_wide or before.text == "<" else "symbol"
        case "!":
            return "sign"
        case "?":
            return "word"
        case "," | ";":
            return "punctuation"
    return "symbol" if word.text in _SYMBOLS else word.role


# ---- Lines ----

_MOST_BLANK_LINES = {"statement": 1, "{": 0, "}": 1}


def _lines(words: list[_Word]) -> Iterator[str]:
    before = "start"
    for unit in _split(words, _begins_unit):
        kind = _KINDS.get(unit[0].text, "statement")
        _place(unit, kind)
        yield from _leading(kind, unit[0], before)
        if kind == "signature":
            yield from _signature(unit)
        elif kind == "statement":
            yield from _lay(unit, INDENT, HANGING)
        elif kind != "end":
            yield from _lay(unit, "", INDENT)
        before = kind


def _leading(kind: str, first: _Word, before: str) -> Iterator[str]:
    """The comments above a unit, taken from its first word, and the blank lines."""
    lines = [*first.above, _Comment("", first.blank)]
    first.above = []
    blanks = [min(line.blank, _MOST_BLANK_LINES.get(kind, 2)) for line in lines]
    if before in ("start", "{"):
        blanks[0] = 0
    if kind in ("{", "}", "end"):
        blanks[-1] = 0
    # Only declarations may follow directly.
    declared = before == "signature" and first.text == "fragment"
    is_apart = kind == "signature" and before != "start" and not declared
    if is_apart and not any(blanks):
        blanks[0] = 1
    margin = INDENT if kind in ("statement", "}") else ""
    for line, blank in zip(lines, blanks, strict=True):
        yield from [""] * blank
        if line.text:
            yield margin + line.text


def _signature(words: list[_Word]) -> Iterator[str]:
    """A signature: on one line if possible, else on two, else with its lists broken."""
    if _fits(words):
        yield from _lay(words, "", "")
        return
    is_graph, arrow = words[0].text == "graph", [w.text for w in words].index("->")
    for half in (words[:arrow], words[arrow:]):
        if _fits(half) and not is_graph:
            yield from _lay(half, "", "")
            continue
        opening = [word.text for word in half].index("(") + 1
        yield from _lay(half[:opening], "", "")
        if is_graph:
            yield from _lay(half[opening:], INDENT, INDENT)
            continue
        for item in _split(half[opening:], _begins_parameter):
            yield from _lay(item, INDENT, HANGING)


def _begins_parameter(before: _Word, word: _Word) -> bool:
    """The comma between two parameters has the level 2."""
    return before.text == "," and word.level == 2


def _fits(words: list[_Word]) -> bool:
    return len(list(_split(words, _begins_run))) == 1 and len(_join(words)) <= WIDTH


def _join(words: list[_Word]) -> str:
    return words[0].text + "".join(word.gap + word.text for word in words[1:])


def _begins_run(before: _Word, word: _Word) -> bool:
    """Whether there is a comment between two words."""
    return bool(before.after or word.above)


def _lay(words: list[_Word], margin: str, hanging: str) -> Iterator[str]:
    """The lines of words that belong together; a comment among them ends a line."""
    indent = margin
    for run in _split(words, _begins_run):
        yield from (indent + comment.text for comment in run[0].above)
        closes = run[0].role in ("close", "wide close")
        *lines, last = _fill(run, margin if closes else indent, hanging)
        yield from lines
        yield last + run[-1].after
        indent = hanging


def _fill(words: list[_Word], margin: str, hanging: str) -> Iterator[str]:
    start = 0
    while start < len(words):
        end = _line_end(words, start, WIDTH - len(margin))
        yield margin + _join(words[start:end])
        start, margin = end, hanging


def _line_end(words: list[_Word], start: int, room: int) -> int:
    """The next line's index: the last outermost break that fits, or else the first."""
    best, level, width = len(words), math.inf, len(words[start].text)
    for index in range(start + 1, len(words)):
        if width > room and level < math.inf:
            return best
        word = words[index]
        if word.level is not None and word.level <= level:
            best, level = index, word.level
        width += len(word.gap) + len(word.text)
    return best if width > room else len(words)
