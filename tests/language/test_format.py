"""The formatter: cases to be read, and what holds for every document.

A file of cases/format/ is a text, a line of dashes, and its canonical layout. `pytest
tests/language/test_format.py --rewrite-cases` writes the present layout into the files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from lark import Lark, Token

import nnef_grad
from nnef_grad.base.errors import NnefGradError
from nnef_grad.base.source import Source
from nnef_grad.commandline.fmt_cli import main
from nnef_grad.language.format import format_text
from nnef_grad.language.lalr import grammar_path
from nnef_grad.language.parser import parse_document, parse_fragments
from nnef_grad.language.syntax import WIDTH, Document, Fragment

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "cases"
RULE = "# ---- nnef-grad-fmt\n"
SAMPLES = sorted((ROOT / "samples").glob("*.nnef"))
LIBRARIES = sorted((ROOT / "nnef_grad").rglob("*.nnef"))


def reformat(text: str) -> str:
    return format_text(Source("<string>", text))


def parse(text: str) -> Document | tuple[Fragment, ...]:
    source = Source("<string>", text)
    has_graph = any(token == "graph" for token in tokens(text))
    return parse_document(source) if has_graph else parse_fragments(source)


@lru_cache(maxsize=1)
def lexer() -> Lark:
    """Where comments can stand are all gaps, also those in arrays of numbers."""
    grammar = grammar_path().read_text("utf-8")
    grammar = re.sub(r"^ *\|? ?LITERALS.*\n", "", grammar, flags=re.MULTILINE)
    return Lark(grammar, parser="lalr", lexer="basic", start="document")


def tokens(text: str) -> list[Token]:
    return list(lexer().lex(text))


def gaps(text: str) -> list[str]:
    """What stands before each token, and at the end."""
    found = tokens(text)
    ends = [0, *(token.end_pos or 0 for token in found)]
    starts = [*(token.start_pos or 0 for token in found), len(text)]
    return [text[end:start] for end, start in zip(ends, starts, strict=True)]


def comments(text: str) -> Counter[str]:
    found = (re.findall(r"#[^\r\n\f]*", gap) for gap in gaps(text))
    return Counter(comment.rstrip() for gap in found for comment in gap)


def is_valid(text: str) -> bool:
    try:
        reformat(text)
    except NnefGradError:
        return False
    return True


def documents() -> dict[str, str]:
    """Every document there is, by a name."""
    paths = [*CASES.rglob("*.nnef"), *SAMPLES, *LIBRARIES]
    parts = {
        f"{path.parent.name}/{path.stem}/{number}": part
        for path in sorted(paths)
        for number, part in enumerate(
            re.split(
                r"^# ---- nnef-grad.*\n", path.read_text("utf-8"), flags=re.MULTILINE
            )
        )
    }
    return {name: text for name, text in parts.items() if is_valid(text)}


DOCUMENTS = documents()
SHORT = [text for text in DOCUMENTS.values() if len(text) < 3000]


def holds(text: str) -> str:
    """What must hold of every text; the canonical layout."""
    formatted = reformat(text)
    assert reformat(formatted) == formatted
    assert parse(formatted) == parse(text)
    assert comments(formatted) == comments(text)
    assert set("".join(re.sub("#.*", "", gap) for gap in gaps(formatted))) <= {
        " ",
        "\n",
    }
    assert not re.search(r" $|\n\n\n\n|\A\n|\n\n\Z", formatted, re.MULTILINE)
    return formatted


# ---- Cases ----


@pytest.mark.parametrize(
    "path", sorted((CASES / "format").glob("*.nnef")), ids=lambda path: path.stem
)
def test_case(path: Path, request: pytest.FixtureRequest) -> None:
    text, _, expected = path.read_bytes().decode().partition(RULE)
    formatted = reformat(text)
    if request.config.getoption("--rewrite-cases"):
        path.write_bytes(f"{text}{RULE}{formatted}".encode())
        return
    assert formatted == expected


def test_foreign_white_space_goes() -> None:
    text = (
        "version 1.0;\r\rgraph\tnet( x\v) ->\f( y )\r\n{\r\n\t# a\t b \t\r\n"
        "\tx = external(shape = [1]);\t\r\n\r\n\r\n\ty = relu(x);# c\f}  \t"
    )
    assert holds(text.replace("a\t b", "a b")) == (
        "version 1.0;\n\ngraph net( x ) -> ( y )\n{\n    # a b\n"
        "    x = external(shape = [1]);\n\n    y = relu(x);  # c\n}\n"
    )


def test_a_comment_keeps_its_text() -> None:
    text = "version 1.0;\ngraph net( x ) -> ( y ) { y = f(x); #\ta\tb\t\n}"
    assert "    y = f(x);  #\ta\tb\n" in reformat(text)


# ---- Properties ----


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_document(name: str) -> None:
    holds(DOCUMENTS[name])


def short_lines(text: str) -> bool:
    lines = text.splitlines()
    return all(len(line) <= WIDTH or line.lstrip()[0] == "#" for line in lines)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples_are_in_their_layout(path: Path) -> None:
    text = path.read_text("utf-8")
    assert reformat(text) == text


@pytest.mark.parametrize(
    "path",
    [*SAMPLES, *sorted((CASES / "backward").glob("*.nnef"))],
    ids=lambda path: path.stem,
)
def test_what_the_compiler_writes_is_in_its_layout(path: Path) -> None:
    """But for statements of more than a line, which the compiler leaves whole."""
    text = re.split(r"^# ---- nnef-grad", path.read_text("utf-8"), flags=re.MULTILINE)[
        0
    ]
    graph = nnef_grad.loads(text)
    for written in (
        nnef_grad.dumps(graph),
        nnef_grad.dumps(nnef_grad.differentiate(graph)),
    ):
        formatted = holds(written)
        assert nnef_grad.dumps(nnef_grad.loads(formatted)).count("\n") > 0
        if short_lines(written):
            assert formatted == written
        unbroken = re.sub(r"\n {8}", " ", formatted)
        assert unbroken == written


SPACES = [" ", "\n", "  ", "\t", " \r\n ", "\f", "\v "]
COMMENTS = ["#\n", " # a; b\n", "\n# 'c\n", "\n\n  #\td\r\n\n\n", " # e\f#\xa0f\r"]


def noisy(text: str, noise: Sequence[str]) -> str:
    """The tokens with noise between them; there is some wherever there was some."""
    between = [
        piece or (" " if gap else "")
        for piece, gap in zip(noise, ["", *gaps(text)[1:-1], ""], strict=True)
    ]
    words = [*map(str, tokens(text)), ""]
    return "".join(piece + word for piece, word in zip(between, words, strict=True))


@st.composite
def noisy_documents(draw: st.DrawFn, pieces: Sequence[str]) -> tuple[str, str]:
    text = draw(st.sampled_from(SHORT))
    size = len(tokens(text)) + 1
    noise = draw(st.lists(st.sampled_from(pieces), min_size=size, max_size=size))
    return text, noisy(text, noise)


@given(noisy_documents(["", "", "", *SPACES, *COMMENTS]))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_noise_between_the_words(documents: tuple[str, str]) -> None:
    text, noise = documents
    assert parse(holds(noise)) == parse(text)


@given(noisy_documents(["", *SPACES]))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_the_layout_does_not_depend_on_the_white_space(
    documents: tuple[str, str],
) -> None:
    text, noise = documents
    plain = noisy(text, [""] * (len(tokens(text)) + 1))
    assert holds(noise) == holds(plain)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 5000 + "x" + ")" * 5000,
        "f(" * 5000 + "x" + ")" * 5000,
        "f(a, " * 5000 + "x" + ")" * 5000,
        "-" * 5000 + "x",
        "x" + " + x" * 5000,
        "[" + "1.0, " * 20000 + "1.0]",
    ],
    ids=["parentheses", "calls", "arguments", "signs", "sum", "list"],
)
def test_length_and_depth_do_not_matter(expression: str) -> None:
    text = f"version 1.0;\ngraph net( x ) -> ( y )\n{{\n    y = {expression};\n}}\n"
    formatted = reformat(text)
    assert reformat(formatted) == formatted
    assert list(map(str, tokens(formatted))) == list(map(str, tokens(text)))


# ---- The command line ----

TEXT = "version 1.0;graph net(x)->(y){x=external(shape=[2]);y=relu(x);}"


def run(*arguments: object, text: str = "") -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], input=text.encode())


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """One that is not in its layout, and one that is."""
    rough, smooth = tmp_path / "rough.nnef", tmp_path / "smooth.nnef"
    rough.write_text(TEXT)
    smooth.write_text(reformat(TEXT))
    return rough, smooth


def test_files_are_rewritten(files: tuple[Path, Path], tmp_path: Path) -> None:
    rough, smooth = files
    rough.chmod(0o640)
    result = run(*files)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"{rough}: changed\n"
    assert rough.read_text() == smooth.read_text()
    assert rough.stat().st_mode & 0o777 == 0o640
    assert len(list(tmp_path.iterdir())) == 2
    assert run(*files).stderr == ""


def test_check_changes_nothing(files: tuple[Path, Path]) -> None:
    rough, smooth = files
    result = run("--check", *files)
    assert (result.exit_code, result.stderr) == (1, f"{rough}: would change\n")
    assert rough.read_text() == TEXT
    assert run("--check", smooth).exit_code == 0


def test_a_pipe() -> None:
    assert run("-", text=TEXT).stdout == reformat(TEXT)
    assert run("-", text=reformat(TEXT)).stdout == reformat(TEXT)
    result = run("--check", "-", text=TEXT)
    assert (result.exit_code, result.stdout) == (1, "")


def test_a_link_stays_a_link(files: tuple[Path, Path], tmp_path: Path) -> None:
    link = tmp_path / "link.nnef"
    link.symlink_to(files[0])
    assert run(link).exit_code == 0
    assert link.is_symlink()
    assert files[0].read_text() == reformat(TEXT)


def test_a_mistake_in_one_file_does_not_stop_the_others(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.nnef"
    wrong.write_text("version 1.0;\ngraph net( x ) -> ( y )\n{\n    y = relu(x)\n}\n")
    mistake = f"{wrong}:5:1: error: unexpected '}}'; expected ';'\n    }}\n    ^\n"
    result = run("--check", wrong, tmp_path / "none.nnef", files[0])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"{files[0]}: would change\n{mistake}error: ")
    result = run(wrong, files[0])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"{files[0]}: changed\n{mistake}"
    assert files[0].read_text() == files[1].read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "<stdin>: error: the text ends too early; expected 'version'"),
        ("# no more\n", "<stdin>:1:9: error: the text ends too early"),
        ("version 1.0;\n", "<stdin>:1:12: error: the text ends too early"),
        ("graph g( x ) -> ( y ) { y = x; }", "<stdin>:1:1: error: unexpected 'graph'"),
        ("fragment f( x: integer ) ->\n", "<stdin>:1:27: error: the text ends too"),
        ("fragment f( x: integer ) - ( y", "<stdin>:1:26: error: unexpected '-'"),
    ],
)
def test_what_is_no_document(text: str, message: str) -> None:
    result = run("-", text=text)
    assert result.exit_code == 2
    assert result.stderr.startswith(message)


def test_mistakes_in_the_call(tmp_path: Path) -> None:
    missing = tmp_path / "missing.nnef"
    result = run(missing)
    assert result.exit_code == 2
    assert (
        result.stderr == f"error: cannot read '{missing}': No such file or directory\n"
    )
    assert run().exit_code == 2


def test_stdin_is_read_once() -> None:
    text = (
        "version 1.0; graph g( x ) -> ( y ) { x = external(shape = [1]); y = copy(x); }"
    )
    once, twice = (
        CliRunner().invoke(main, ["-"] * count, input=text) for count in (1, 2)
    )
    assert twice.exit_code == 0
    assert twice.stdout == once.stdout


def test_what_tract_writes_is_formatted() -> None:
    """Extension lines stay as they are, names and strings may be any text."""
    text = """version 1.0;
extension tract_registry   tract_core ;
extension tract_assert T>=0;
extension tract_symbol p2o.DynamicDimension.0;
fragment body( i"Xt.0" : tensor<scalar> ) -> ( i"a(b" : tensor<scalar> ) { i"a(b"=i"Xt.0"*2.0; }
graph net( i"x:0" ) -> (i'y "z\n"') {
i"x:0" = external( shape = [ i"p2o.DynamicDimension.0",2 ] ) ; i'y "z\n"' = body(i"x:0");
}
"""
    formatted = """version 1.0;
extension tract_registry tract_core;
extension tract_assert T>=0;
extension tract_symbol p2o.DynamicDimension.0;

fragment body( i"Xt.0": tensor<scalar> ) -> ( i"a(b": tensor<scalar> )
{
    i"a(b" = i"Xt.0" * 2.0;
}

graph net( i"x:0" ) -> ( i'y "z\n"' )
{
    i"x:0" = external(shape = [i"p2o.DynamicDimension.0", 2]);
    i'y "z\n"' = body(i"x:0");
}
"""
    assert reformat(text) == formatted == reformat(formatted)
    assert nnef_grad.loads(text) == nnef_grad.loads(formatted)


def test_extended_identifiers_need_no_line_of_tract() -> None:
    """tract reads them anywhere, and the formatter takes no side."""
    text = """version 1.0;

graph i"a b"( i"x:0" ) -> ( y )
{
    i"x:0" = external(shape = [2]);
    y = relu(i"x:0");
}
"""
    assert reformat(text.replace("    ", "")) == text
