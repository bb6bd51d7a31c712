"""The site of the documentation, as far as it can be tested without building it: `make
docs` follows every link of the built one.
"""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
from links import broken, loaded
from sessions import with_commands
from shown import FOLDER, MLP, SHOWN, sum_of, sums_when_taken
from support.networks import network
from support.pages import ROOT
from tables import with_tables

import nnef_grad
from nnef_grad import interop, torch, training

DOCS = ROOT / "docs"
# Pages that the build makes of files elsewhere.
MOVED = {"changelog.md", "code-of-conduct.md", "contributing.md", "security.md"}


def test_the_pictures_are_those_of_the_scripts() -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    drawn: dict[Path, str] = {}
    for name in ("draw.py", "gallery.py", "examples.py"):
        drawn |= runpy.run_path(str(FOLDER / name))["drawn"]()
    assert {path: path.read_text("utf-8") for path in drawn} == drawn
    assert set(drawn) == set(FOLDER.glob("*.svg"))


@pytest.mark.parametrize("picture", SHOWN)
def test_the_pictures_show_what_a_reader_would_see(picture: str) -> None:
    graph = (
        nnef_grad.loads(network("resnet", 1, 224))
        if picture == "report-resnet.png"
        else nnef_grad.load(MLP)
    )
    assert sum_of(picture, graph) == sums_when_taken()[picture], (
        "docs/report.md shows what is no longer so: look at the report in a browser,"
        " then run: python docs/pictures/make.py RESNET.nnef"
    )


def test_every_picture_is_drawn_or_taken() -> None:
    assert {path.name for path in FOLDER.glob("*.png")} == set(SHOWN)
    assert set(sums_when_taken()) == set(SHOWN)


def test_the_navigation_has_every_page() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    named = re.findall(r"[\w/-]+\.md", navigation)
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert sorted(named) == sorted(pages | MOVED)


def test_the_documentation_is_short_enough_to_be_read() -> None:
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    words = {path.name: len(path.read_text("utf-8").split()) for path in pages}
    assert sum(words.values()) <= 35_000, "what is a table belongs into docs/tables/"


def test_every_table_is_on_a_page() -> None:
    text = "".join(path.read_text("utf-8") for path in DOCS.rglob("*.md"))
    shown = re.findall(r"^\[[^\]\n]+\]\(\S*tables/([\w-]+\.csv)\)$", text, re.MULTILINE)
    assert sorted(shown) == sorted(path.name for path in (DOCS / "tables").iterdir())


def test_a_table_is_shown_below_its_link(tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    rows = 'name,what\n`a`,$x$ < 1\n`a`,"two\nlines"\n'
    (folder / "t.csv").write_text(rows)
    page = with_tables(
        "[T](tables/t.csv)\n", tmp_path, lambda formula: f"<i>{formula}</i>"
    )
    assert page.startswith("[T](tables/t.csv)\n\n<div")
    assert '<tr id="a"><td><code>a</code> </td>' in page
    assert '<td data-search-exclude=""><i>x</i> &lt; 1</td>' in page
    assert "<pre><code>two&#10;lines</code></pre>" in page
    assert page.count('id="a"') == 1


def reference() -> str:
    """The pages with the names of the packages."""
    pages = [*(DOCS / "api").glob("*.md"), DOCS / "how-to" / "pytorch-module.md"]
    return "".join(path.read_text("utf-8") for path in pages)


@pytest.mark.parametrize(
    ("package", "names"),
    [
        ("nnef_grad", nnef_grad.__all__),
        ("nnef_grad.interop", interop.__all__),
        ("nnef_grad.training", training.__all__),
        ("nnef_grad.torch", torch.__all__),
    ],
)
def test_the_reference_has_every_name(package: str, names: list[str]) -> None:
    pages = reference()
    missing = [
        name
        for name in names
        if not re.search(rf"^::: {package}(\.\w+)*\.{name}$", pages, re.MULTILINE)
        and not re.search(rf"^::: nnef_grad\.{name}$", pages, re.MULTILINE)
    ]
    assert missing == []


def test_the_reference_shows_functions_and_no_modules_of_their_names() -> None:
    pages = reference()
    shown = re.findall(r"^::: (\S+)$", pages, re.MULTILINE)
    assert "nnef_grad.training.run.run" in shown
    # Its source is read, not run: a module hides what its package imports from it.
    assert [name for name in shown if name in sys.modules] == []


def test_the_copy_button_of_a_session_takes_its_commands() -> None:
    page = (
        '<div class="language-console highlight"><pre><span></span><code>'
        '<span class="gp">$ </span>nnef-grad<span class="w"> </span>a.nnef<span>\\</span>\n'
        "  -o &quot;b.nnef&quot;\n<span>a: 3 operations in</span>\n</code></pre></div>"
    )
    copied = 'data-copy="nnef-grad a.nnef\\\n  -o &quot;b.nnef&quot;"'
    assert copied in with_commands(page)


def test_the_check_of_links(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#there">x</a> <a href="b.html#gone">x</a> <a href="c.html">x</a>'
        '<a href="https://example.org">x</a> <img src="https://example.org/x.png">'
    )
    (tmp_path / "b.html").write_text('<p id="there"></p>')
    (tmp_path / "s.css").write_text("p { background: url(https://example.org/y.png) }")
    assert list(broken(tmp_path)) == [
        "a.html: b.html#gone has no such anchor",
        "a.html: c.html leads nowhere",
    ]
    assert list(loaded(tmp_path)) == [
        "a.html loads https://example.org/x.png",
        "s.css loads //example.org/y.png",
    ]
