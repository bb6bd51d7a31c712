"""Documents written by hand for each rule of the standard, from corpus.txt.

A section of the corpus begins with `=== number title | kind | template`. Each line
after it is a document: `+` where the standard accepts it, `-` where it does not. What
stands on the line takes the place of `{}` in the template, and the kind makes a document
of the result:

    raw         the document itself, with the escapes \\n, \\t and so on
    flat        statements of a graph that has the inputs of `INPUTS` and the output y
    operators   the same, with operator expressions
    fragments   fragments, an @, and statements, with both extensions
    compound    an invocation of a compound operation, which is to be expanded

On all of these documents the Khronos parser agrees. Where it does not, the document
stands in differences.txt, under what differs.
There, a document has its kind on its own line, and `KINDS` are further kinds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FRAGMENTS = "extension KHR_enable_fragment_definitions;\n"
OPERATORS = "extension KHR_enable_operator_expressions;\n"
INPUTS = """    x = external(shape = [2, 3]);
    w = external(shape = [2, 3]);
    m = external<logical>(shape = [2, 3]);
    n = external<integer>(shape = [2]);
"""
COMPOUND_INPUTS = """    x = external(shape = [2, 4, 6, 6]);
    w = external(shape = [1, 4, 1, 1]);
    p = external(shape = [2, 4]);
    q = external(shape = [3, 4]);
    planes = external(shape = [4, 1, 2, 2]);
    points = external(shape = [4, 4, 1, 1]);
    rois = external(shape = [3, 4]);
    batch = external<integer>(shape = [3]);
"""
# Kinds that stand for another one with a template.
KINDS = {
    "scalar": ("operators", "y = mul(x, {});"),
    "list": ("operators", "y = constant(shape = {}, value = [1.0]);"),
    "label": ("operators", "y = variable(shape = [1], label = {});"),
    "condition": ("operators", "y = mul(x, 2.0 if {} else 3.0);"),
    "definition": ("fragments", "{} @ y = f(x);"),
    "body": (
        "fragments",
        "fragment f( x: tensor<scalar>, a: integer[] = [0, 1], c: scalar = 2.0,"
        " q: logical = true ) -> ( y: tensor<scalar> ) { {} } @ y = f(x);",
    ),
}
_SECTION = re.compile(r"=== (?P<title>.*?) \| (?P<kind>\w+) \| (?P<template>.*)")
_FIELD = re.compile(r"(?P<key>khronos|ours|why) ?(?P<verdict>\w*): (?P<text>.*)")


@dataclass(frozen=True)
class Document:
    """A text, and whether the standard accepts it; as we read it, where it is open.

    `expanded` are the operations of the standard whose bodies are put in their place.
    `inferred` is whether the Khronos parser is asked for shapes.
    """

    name: str
    text: str
    valid: bool
    expanded: tuple[str, ...] = ()
    inferred: bool = True


@dataclass
class Difference:
    """Documents on which the Khronos parser and we do not agree.

    Attributes:
        construct: what they have in common.
        verdict: what the Khronos parser does: accepts, refuses, crashes, differs, where
            both accept and make different graphs, or likewise, where both accept what
            the standard does not.
        khronos, ours: the same in more words.
        why: what the standard says.
        documents: the documents.
    """

    construct: str
    verdict: str = ""
    khronos: str = ""
    ours: str = ""
    why: str = ""
    documents: list[Document] = field(default_factory=list)


def corpus() -> list[Document]:
    """The documents on which all agree."""
    return list(_corpus(_lines("corpus.txt")))


def differences() -> list[Difference]:
    """What the Khronos parser and we do not agree on."""
    return list(_differences("differences.txt"))


def _lines(name: str) -> Iterator[tuple[int, str]]:
    text = Path(__file__).with_name(name).read_text("utf-8")
    return ((n, line) for n, line in enumerate(text.split("\n"), 1) if line)


def _corpus(lines: Iterator[tuple[int, str]]) -> Iterator[Document]:
    section: re.Match[str] | None = None
    for number, line in lines:
        found = _SECTION.fullmatch(line)
        if found:
            section = found
            continue
        assert section is not None
        assert line[:2] in ("+ ", "- "), f"corpus.txt:{number}: {line}"
        snippet = section["template"].replace("{}", line[2:])
        name = f"{section['title']}, line {number}".replace(" ", "_")
        yield document(name, section["kind"], snippet, valid=line[0] == "+")


def _differences(name: str) -> Iterator[Difference]:
    difference = None
    for number, line in _lines(name):
        if line.startswith("=== "):
            if difference is not None:
                yield difference
            difference = Difference(line[4:])
        elif not line.startswith(("#", "== ")):
            assert difference is not None
            _add_line(difference, f"line_{number}", line)
    if difference is not None:
        yield difference


def _add_line(difference: Difference, place: str, line: str) -> None:
    found = _FIELD.fullmatch(line)
    if found:
        setattr(difference, found["key"], found["text"])
        difference.verdict = found["verdict"] or difference.verdict
        return
    assert line[:2] in ("+ ", "- "), line
    kind, _, snippet = line[2:].partition(" | ")
    name = f"{difference.construct}, {place}".replace(" ", "_")
    difference.documents.append(document(name, kind, snippet, valid=line[0] == "+"))


def document(name: str, kind: str, snippet: str, *, valid: bool) -> Document:
    """A document of some kind."""
    if kind == "compound":
        operation = re.findall(r"= (\w+)\(", snippet)[0]
        return Document(name, _compound(snippet), valid, (operation,))
    return Document(name, _text(kind, snippet), valid)


def _text(kind: str, snippet: str) -> str:
    if kind in KINDS:
        kind, template = KINDS[kind]
        snippet = template.replace("{}", snippet)
    if kind == "raw":
        return snippet.encode("latin-1", "backslashreplace").decode("unicode_escape")
    if kind == "flat":
        return f"version 1.0;\n{_graph(snippet)}"
    if kind == "operators":
        return f"version 1.0;\n{OPERATORS}{_graph(snippet)}"
    assert kind == "fragments"
    definitions, _, statements = snippet.partition(" @ ")
    return f"version 1.0;\n{FRAGMENTS}{OPERATORS}{definitions}\n{_graph(statements)}"


def _graph(statements: str) -> str:
    return f"graph net( x, w, m, n ) -> ( y )\n{{\n{INPUTS}    {statements}\n}}\n"


def _compound(statement: str) -> str:
    inputs = ", ".join(re.findall(r"(\w+) = external", COMPOUND_INPUTS))
    outputs = ", ".join(re.findall(r"\b[yz]\b", statement.partition(" = ")[0]))
    return (
        f"version 1.0;\ngraph net( {inputs} ) -> ( {outputs} )\n"
        f"{{\n{COMPOUND_INPUTS}    {statement}\n}}\n"
    )


def fragments_of(text: str) -> list[str]:
    """The names of the fragments that a text defines."""
    return re.findall(r"\bfragment\s+(\w+)", text)
