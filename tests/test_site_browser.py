"""The site of the documentation in a real browser. Needs the group `docs`, which builds it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.pages import ROOT

pytest.importorskip("material", reason="MkDocs is not here: pip install --group docs")
CUT_OFF = """() => [...document.querySelectorAll("pre > code")]
  .filter((code) => code.scrollWidth > code.clientWidth + 1)
  .map((code) => code.textContent)"""
PICTURES = """() => [...document.querySelectorAll(".md-content img")]
  .filter((image) => image.getClientRects().length)
  .map((image) => image.getAttribute("src"))"""

# The screenshots have one and a half dots for each pixel.
SHRUNK = """() => Object.fromEntries([...document.querySelectorAll(".md-content img")]
  .filter((image) => image.getClientRects().length)
  .map((image) => [image.src, image.width * (image.src.includes("/report-") ? 1.5 : 1) / image.naturalWidth])
  .filter(([src, scale]) => scale < 0.9))"""


pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d"]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run([*build, folder], cwd=ROOT, env=env, check=True)
    return folder


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    opened = browser.new_page(viewport={"width": 1280, "height": 800})
    yield opened
    opened.close()


def pages(site: Path) -> list[Path]:
    """The pages, without those of source files and those that lead to others."""
    every = sorted(site.rglob("*.html"))
    own = [p for p in every if "source" not in p.relative_to(site).parts]
    return [p for p in own if 'http-equiv="refresh"' not in p.read_text("utf-8")]


@pytest.mark.parametrize("width", [1280, 390])
def test_no_code_is_cut_off(site: Path, page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    cut = {}
    for path in pages(site):
        page.goto(path.as_uri())
        cut[path.name] = page.evaluate(CUT_OFF)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert {name: blocks for name, blocks in cut.items() if blocks} == {}


def mean_brightness(page: Any, src: str) -> float:
    """The brightness of a picture as it is seen, from 0 to 255."""
    # The screenshot has the style sheet's filters; a canvas gives its pixels.
    png = page.locator(f'.md-content img[src="{src}"]').screenshot(type="png")
    return float(
        page.evaluate(
            """async (bytes) => {
              const image = await createImageBitmap(new Blob([new Uint8Array(bytes)]));
              const drawn = new OffscreenCanvas(image.width, image.height).getContext("2d");
              drawn.drawImage(image, 0, 0);
              const { data } = drawn.getImageData(0, 0, image.width, image.height);
              return data.reduce((sum, value, i) => sum + (i % 4 < 3 ? value : 0), 0) / (data.length * 0.75);
            }""",
            list(png),
        )
    )


def test_no_picture_is_a_white_box_in_the_dark(site: Path, page: Any) -> None:
    page.emulate_media(color_scheme="dark")
    bright, seen = {}, set()
    for name in ("index", "speed", "memory", "report"):
        page.goto((site / f"{name}.html").as_uri())
        for src in page.evaluate(PICTURES):
            seen.add(src.partition("#")[0])
            if (mean := mean_brightness(page, src)) > 90:
                bright[src] = mean
    assert bright == {}
    plots = {path.name for path in (ROOT / "docs" / "plots").glob("*.svg")}
    assert {f"plots/{name}" for name in plots} | {"speed.svg"} <= seen
    assert "pictures/report-mlp-dark.png" in seen


@pytest.mark.parametrize("width", [1280, 390])
def test_no_letter_of_a_picture_is_made_small(
    site: Path, page: Any, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    shrunk: dict[str, float] = {}
    for path in pages(site):
        page.goto(path.as_uri())
        shrunk |= page.evaluate(SHRUNK)
    assert shrunk == {}


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ("conv", "operations.html"),
        ("install", "install.html"),
        ("resnet50", "models.html"),
        ("--wrt", "command-line.html"),
        ("-o", "command-line.html"),
        ("GPU", "tutorials/gpu.html"),
        ("limitations", "limits.html"),
        ("saliency", "how-to/derivatives.html"),
    ],
)
def test_the_search_finds(site: Path, page: Any, query: str, where: str) -> None:
    page.goto((site / "index.html").as_uri())
    page.click(".md-search__input")
    page.keyboard.type(query)
    page.locator(".md-search-result__link").first.wait_for(timeout=30_000)
    found = page.eval_on_selector_all(
        ".md-search-result__link", "all => all.map((link) => link.href)"
    )
    assert f"/{where}" in found[0]


def test_a_table_is_filtered_by_what_is_typed(site: Path, page: Any) -> None:
    page.goto((site / "runtimes.html").as_uri())
    page.fill(".filtered input", "ROI_align backward")
    rows = page.locator(".filtered tbody tr:visible td:first-child")
    assert rows.all_inner_texts() == ["avg_roi_align", "max_roi_align"]


def test_the_first_screen_shows_the_thing(site: Path, page: Any) -> None:
    """The layer, its gradients, how to install, and the beginning of the report's picture."""
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto((site / "index.html").as_uri())
    for shown in ("linear_layer(", "linear_layer_backward(", "pip install"):
        box = page.locator("pre", has_text=shown).first.bounding_box()
        assert box["y"] + box["height"] <= 900, shown
    picture = page.locator('img[src*="report-mlp"]:visible').first
    assert picture.bounding_box()["y"] < 850


def test_a_page_that_is_gone_leads_on(site: Path, page: Any) -> None:
    page.goto((site / "tutorials" / "tract.html").as_uri())
    page.wait_for_url("**/tract.html")
    page.wait_for_function("document.title.includes('from PyTorch')")


def test_the_reference_shows_functions_and_classes(site: Path, page: Any) -> None:
    for path in sorted((site / "api").glob("*.html")):
        if "refresh" in path.read_text("utf-8")[:500]:
            continue  # it leads on
        page.goto(path.as_uri())
        assert page.locator(".doc-heading .doc-symbol-module").count() == 0
    page.goto((site / "api" / "training.html").as_uri())
    heading = page.locator('[id="nnef_grad.training.run.run"]')
    assert heading.locator(".doc-symbol-function").count() == 1
