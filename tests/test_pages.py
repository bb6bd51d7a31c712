"""The pages of the documentation: all that they show runs, and is what is printed.
`--rewrite-cases` brings them up to date.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from support.pages import BLOCK, ROOT, Session

import nnef_grad

DOCS = ROOT / "docs"


TONES = ROOT / "samples" / "exported" / "tones"


def has_learned(folder: Path, printed: str) -> None:
    """The last layer has changed, and the loss is small. Nothing else has changed, and no
    other file.
    """
    before, after = (nnef_grad.load_data(folder / f) for f in ("tones", "tuned"))
    assert after.keys() == nnef_grad.load_data(TONES).keys() == before.keys()
    changed = {label for label in before if (before[label] != after[label]).any()}
    assert changed == {"head.weight", "head.bias"}
    assert float(printed.rpartition("loss ")[2]) < 0.1


def is_trained(folder: Path, printed: str) -> None:
    """All steps were made, the loss is below one, and all variables were written."""
    assert printed.startswith("500 0.")
    written = nnef_grad.load_data(folder / "trained")
    assert sorted(written) == sorted(nnef_grad.load_data(folder / "model"))


def nothing(folder: Path, printed: str) -> None:
    """The samples are all that is needed, and the page says what comes out."""


class Page(NamedTuple):
    """What following a page takes.

    Attributes:
        needs: the packages that have to be installed.
        end: tests what has come out, by the folder and by what was printed.
        without: the modules that programs which the page has written cannot import.
    """

    needs: tuple[str, ...] = ()
    end: Callable[[Path, str], None] = nothing
    without: tuple[str, ...] = ()


PLAIN = Page()
ONNX = Page(needs=("onnx", "onnxruntime"))
PAGES: dict[str, Page] = {
    "README.md": Page(needs=("torch", "onnx")),
    "CONTRIBUTING.md": PLAIN,
    "SECURITY.md": PLAIN,
    "CODE_OF_CONDUCT.md": PLAIN,
    **dict.fromkeys(
        (
            *(
                "docs/install.md",
                "docs/index.md",
                "docs/interface.md",
                "docs/broadcasting.md",
            ),
            *("docs/when.md", "docs/nnef.md"),
            *("docs/limits.md", "docs/glossary.md"),
            *("docs/architecture.md", "docs/conventions.md", "docs/onnx.md"),
            *("docs/distributed.md", "docs/api/compiler.md", "docs/api/errors.md"),
            *("docs/api/interop.md", "docs/api/training.md"),
            *("docs/tutorials/first-gradient.md", "docs/tutorials/own-rule.md"),
            *("docs/tutorials/second-order.md", "docs/how-to/check.md"),
            *(
                "docs/how-to/errors.md",
                "docs/how-to/tflite.md",
                "docs/how-to/derivatives.md",
                "docs/how-to/per-example.md",
                "docs/how-to/adapters.md",
            ),
            *("docs/dialects.md", "docs/how-to/fragments.md"),
            *("docs/how-to/runtimes.md", "docs/report.md"),
            "docs/memory.md",
            "docs/open-sizes.md",
        ),
        PLAIN,
    ),
    **dict.fromkeys(
        ("docs/pytorch.md", "docs/tutorials/from-pytorch.md"), Page(needs=("torch",))
    ),
    "docs/tutorials/onnx-runtime.md": ONNX,
    "docs/tutorials/browser.md": Page(needs=("torch", "onnx", "sklearn")),
    "docs/tutorials/gpu.md": ONNX,
    "docs/how-to/converters.md": Page(needs=("nnef",)),
    "docs/how-to/models-with-data.md": ONNX,
    **dict.fromkeys(
        ("docs/how-to/grad-cam.md", "docs/how-to/potentials.md"),
        Page(needs=("torch", "onnx", "onnxruntime")),
    ),
    "docs/how-to/pytorch-module.md": ONNX,
    "docs/training.md": ONNX._replace(end=is_trained),
    "docs/gallery.md": Page(needs=("onnx", "onnxruntime", "sklearn")),
    "docs/tract.md": Page(
        ("tract", "torch_to_nnef"), end=has_learned, without=("nnef_grad", "torch")
    ),
}
# Pages that are made of tables of the code, whose own tests hold them.
MADE = {
    *("command-line.md", "operations.md", "runtimes.md"),
    *("models.md", "speed.md"),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_followed(
    name: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = PAGES[name]
    for package in page.needs:
        pytest.importorskip(package)
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    monkeypatch.chdir(tmp_path)
    session = Session(tmp_path, page.without)
    text = (ROOT / name).read_text("utf-8")
    current = session.follow(text)
    if request.config.getoption("--rewrite-cases"):
        (ROOT / name).write_text(current, "utf-8")
    else:
        assert current == text
    page.end(tmp_path, session.everything)


def test_every_page_is_followed_by_a_test() -> None:
    pages = {str(path.relative_to(ROOT)) for path in DOCS.rglob("*.md")}
    assert pages - {f"docs/{name}" for name in MADE} == {
        name for name in PAGES if name.startswith("docs/")
    }


@pytest.mark.parametrize("name", PAGES)
def test_no_snippet_is_hidden_from_the_tests(name: str) -> None:
    rest = BLOCK.sub("", (ROOT / name).read_text("utf-8"))
    assert "```" not in rest
    assert not re.search(r"^\n {4}(?! )", rest, re.MULTILINE), "an indented block"
