"""What MkDocs does besides: pages of source files, formulas, NNEF in colours, and a check
of every link.

Pages link to files of the repository, such as `../nnef_grad/ops/conv.py`. On the site such
a link leads to a page that shows the file, so that the site is complete without a network.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from latex2mathml.converter import convert
from lexer import NnefLexer
from links import broken, loaded
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from pygments.lexers import LEXERS
from sessions import with_commands
from tables import with_tables

ROOT = Path(__file__).parents[2]
# Files of the repository that are pages, under another name.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
}
# Pages that were, and where what they said is now.
GONE = {
    "differences": "interface.html#accepted-documents",
    "onnx-operators": "onnx.html#operators",
    "questions": "limits.html#questions",
    "api/torch": "../how-to/pytorch-module.html#reference",
    "how-to/cost": "../memory.html",
    "how-to/exports": "../dialects.html",
    "how-to/nnef-2": "runtimes.html#nnef-20",
    "tutorials/tract": "../tract.html",
    "tutorials/training": "../training.html",
}
# What a search finds first: what an option or an operation is before its uses, and what is for
# users before what is for contributors.
WEIGHTS = {
    "command-line.md": 40,
    "operations.md": 30,
    "how-to/derivatives.md": 15,
    "limits.md": 4,
    "install.md": 4,
    **dict.fromkeys(
        ("architecture.md", "contributing.md", "changelog.md", "code-of-conduct.md"),
        0.1,
    ),
}
FORWARDING = (
    '<!doctype html><title>Moved</title><meta http-equiv="refresh" content="0; url={0}">'
    '<a href="{0}">Moved</a>\n'
)
LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)\s]*)?\))")
FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL
)
# A word below a line, which the style sheet draws: that of fonts is too short.
WORD = re.compile(r"<mover>(<mrow><mtext>[^<]*</mtext></mrow><mo)")
LANGUAGES = {
    ".py": "python",
    ".mjs": "js",
    ".nnef": "nnef",
    ".md": "markdown",
    ".lark": "text",
}


def on_config(config: Any) -> Any:
    """The version, and the language that pygments does not know."""
    LEXERS["NnefLexer"] = ("lexer", NnefLexer.name, ("nnef",), ("*.nnef",), ())
    config.copyright = f"nnef-grad {version()}, Apache-2.0"
    return config


def version() -> str:
    """The one place where the version stands."""
    text = (ROOT / "nnef_grad" / "__init__.py").read_text("utf-8")
    (found,) = re.findall(r'^__version__ = "(.*)"$', text, re.MULTILINE)
    return str(found)


# ---- Pages of files of the repository ----


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages of other files: those of PAGES, and all that pages link to."""
    for name, page in PAGES.items():
        if name != "README.md":
            text = (ROOT / name).read_text("utf-8")
            files.append(File.generated(config, page, content=text))
    wanted = {
        target
        for page in files.documentation_pages()
        for target in linked(page.content_string, base_of(page.src_uri))
    }
    for target in sorted(wanted):
        uri = source_page(target)
        files.append(File.generated(config, uri, content=shown(target)))
    return files


def base_of(page: str) -> PurePosixPath:
    """The folder that the links of a page are relative to."""
    moved = {uri: name for name, uri in PAGES.items() if name != "README.md"}
    return (
        (PurePosixPath("docs") / page).parent if page not in moved else PurePosixPath()
    )


def linked(text: str, base: PurePosixPath) -> Iterator[str]:
    """The files of the repository, other than pages, that a text links to."""
    for _, link, _ in LINK.findall(text):
        target = os.path.normpath(base / link)
        if page_of(target) is None and (ROOT / target).exists():
            yield target


def page_of(target: str) -> str | None:
    """The page or the picture that a file of the repository is, if it is one."""
    if target.startswith("docs/") and not target.endswith(".py"):
        return target.removeprefix("docs/")
    return PAGES.get(target)


def source_page(target: str) -> str:
    return f"source/{target}.md"


def shown(target: str) -> str:
    """The page of a file, or of a folder."""
    path = ROOT / target
    head = f"---\nsearch:\n  exclude: true\nhide: [navigation]\n---\n# `{target}`\n\n"
    if path.is_dir():
        names = sorted(p.name + "/" * p.is_dir() for p in path.iterdir() if is_shown(p))
        return head + "\n".join(f"- `{name}`" for name in names) + "\n"
    language = LANGUAGES.get(path.suffix, "text")
    text = path.read_text("utf-8").rstrip()
    return f"{head}``````{language}\n{text}\n``````\n"


def is_shown(path: Path) -> bool:
    return not path.name.startswith(("__pycache__", "."))


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links lead to pages of the site, and pages have their weights in the search."""
    if page.file.src_uri in WEIGHTS:
        page.meta["search"] = {"boost": WEIGHTS[page.file.src_uri]}
    if page.file.src_uri.startswith("source/"):
        return markdown
    base, here = base_of(page.file.src_uri), PurePosixPath(page.file.src_uri).parent

    def moved(link: re.Match[str]) -> str:
        target = os.path.normpath(base / link[2])
        uri = page_of(target)
        if uri is None and (ROOT / target).exists():
            uri = source_page(target)
        return (
            link[0]
            if uri is None
            else f"{link[1]}{os.path.relpath(uri, here)}{link[3]}"
        )

    return with_tables(LINK.sub(moved, markdown), ROOT / "docs" / here, inline)


# ---- Formulas ----


def on_page_content(content: str, page: Any, config: Any, files: Files) -> str:
    """Formulas become MathML, which browsers draw and screen readers speak. The copy
    button of a console session copies its commands.
    """
    return with_commands(FORMULA.sub(mathml, content))


def mathml(formula: re.Match[str]) -> str:
    display = "inline" if formula[2] == "(" else "block"
    shown = drawn(html.unescape(formula[3]), display)
    return f'<{formula[1]} class="formula">{shown}</{formula[1]}>'


def drawn(formula: str, display: str) -> str:
    return WORD.sub(r'<mover class="over">\1', convert(formula, display=display))


def inline(formula: str) -> str:
    """A formula in a cell of a table."""
    return f'<span class="formula">{drawn(formula, "inline")}</span>'


# ---- Every link ----


def on_post_build(config: Any) -> None:
    """The site is complete: every link leads somewhere, that of a page that is gone too, and
    nothing is loaded from a network.
    """
    site = Path(config.site_dir)
    for page, place in GONE.items():
        path = site / f"{page}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FORWARDING.format(place), "utf-8")
    if problems := [*broken(site), *loaded(site)]:
        raise PluginError("\n".join(problems))
