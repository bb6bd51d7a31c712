"""The grammar and the .nnef files are found from a wheel, from an editable install and
from a checkout.
"""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest

import nnef_grad

ROOT = Path(__file__).parents[1]
PROGRAM = """
import nnef_grad
from nnef_grad.language.library import STDLIB
from nnef_grad.language.lalr import grammar_path
from nnef_grad.autodiff.rules import DERIVATIVES
from nnef_grad.training import training_step

text = "version 1.0;\\ngraph net( x ) -> ( y ) { x = external(shape = [1]); y = relu(x); }"
assert "grad_x" in nnef_grad.dumps(nnef_grad.differentiate(nnef_grad.loads(text)))
trained = text.replace("y = relu(x)", "w = variable(shape = [1], label = 'w'); y = mul(x, w)")
step = training_step(nnef_grad.loads(trained), loss="huber", optimizer="adam")
assert "update(w" in nnef_grad.dumps(step.graph)
graph = nnef_grad.loads(text)
nnef_grad.report(graph, nnef_grad.differentiate(graph), "report.html")
print(nnef_grad.__file__, grammar_path(), len(STDLIB), len(DERIVATIVES) > 50, sep="\\n")
"""


def run(*command: object, path: Path | None = None, cwd: Path | None = None) -> str:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd)} if path else None
    if path and environment is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [str(c) for c in command],
        capture_output=True,
        text=True,
        env=environment,
        cwd=cwd,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check(output: str, package: Path, grammar: Path) -> None:
    file, found, count, rules = output.split("\n")[:4]
    assert Path(file).resolve().parent == package.resolve()
    assert Path(found).resolve() == grammar.resolve()
    assert (count, rules) == ("119", "True")


def pip(*arguments: object) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--no-deps",
    ]
    done = subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(
            f"pip cannot build the package here: {done.stderr.strip().splitlines()[-1]}"
        )


def test_the_version_is_in_one_place() -> None:
    version = nnef_grad.__version__
    for name in ("pyproject.toml", "mkdocs.yml", "README.md"):
        assert version not in (ROOT / name).read_text("utf-8"), name
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {version}\ndate-released: " in citation
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_links_of_readme_lead_somewhere_on_an_index() -> None:
    """With the address of the repository into it; without one there are none."""
    hook = ModuleType("hatchling.metadata.plugin.interface")
    hook.MetadataHookInterface = object  # type: ignore[attr-defined]
    with patch.dict(sys.modules, {hook.__name__: hook}):
        described = runpy.run_path(str(ROOT / "hatch_build.py"))["described"]
    text = (ROOT / "README.md").read_text("utf-8")
    target = re.compile(r"\]\(([^)]*)\)")
    found = target.findall(described(text, "https://example.org/nnef-grad"))
    assert len(found) == len(target.findall(text)) > 20
    assert all(link.startswith("https://") for link in found)
    assert (
        "https://example.org/nnef-grad/raw/main/docs/pictures/report-mlp.png" in found
    )
    assert "https://example.org/nnef-grad/blob/main/docs/limits.md" in found
    alone = target.findall(described(text, ""))
    assert alone == [link for link in target.findall(text) if link.startswith("http")]


def test_from_a_checkout(tmp_path: Path) -> None:
    output = run(sys.executable, "-c", PROGRAM, path=ROOT, cwd=tmp_path)
    check(output, ROOT / "nnef_grad", ROOT / "grammars" / "nnef.lark")


@pytest.mark.thorough
def test_from_a_wheel(tmp_path: Path) -> None:
    site = tmp_path / "site"
    pip("--target", site, ROOT)
    output = run(sys.executable, "-c", PROGRAM, path=site, cwd=tmp_path)
    check(output, site / "nnef_grad", site / "nnef_grad" / "grammars" / "nnef.lark")
    assert (site / "nnef_grad" / "py.typed").exists()
    assert (site / "bin" / "nnef-grad-step").exists()
    (licences,) = site.glob("nnef_grad-*.dist-info/licenses")
    texts = [path.read_text("utf-8") for path in licences.rglob("*LICENSE")]
    assert sorted("MERCHANTABILITY" in text for text in texts) == [True, True]
    assert any("Apache License" in text for text in texts)


def test_without_the_khronos_tools(tmp_path: Path) -> None:
    """Their parser is compiled, and has no wheel for Linux on ARM."""
    without = 'import sys\nsys.modules.update({"nnef": None, "nnef_tools": None})\n'
    output = run(sys.executable, "-c", without + PROGRAM, path=ROOT, cwd=tmp_path)
    check(output, ROOT / "nnef_grad", ROOT / "grammars" / "nnef.lark")
    asked = "from nnef_grad.interop import from_onnx, from_torch, from_nnef_tools"
    caught = f"import nnef_grad\ntry:\n    {asked}\nexcept nnef_grad.UsageError as error: print(error)"
    said = run(sys.executable, "-c", without + caught, path=ROOT, cwd=tmp_path)
    assert (
        said == "graphs of the Khronos tools need nnef-tools: pip install nnef-tools\n"
    )


@pytest.mark.thorough
def test_from_an_editable_install(tmp_path: Path) -> None:
    site = tmp_path / "site"
    pip("--target", site, "--editable", ROOT)
    (tmp_path / "run.py").write_text(
        f"import site\nsite.addsitedir({str(site)!r})\n{PROGRAM}"
    )
    output = run(sys.executable, tmp_path / "run.py", cwd=tmp_path)
    check(output, ROOT / "nnef_grad", ROOT / "grammars" / "nnef.lark")


def test_the_versions_of_the_page_are_those_that_are_tested() -> None:
    """The first and the last of each package in the two locks, whatever the Python."""
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    rows = re.findall(r"^\| (\w+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
    assert len(rows) == 9
    for name, *versions in rows:
        if name == "Python":
            continue
        for lock, version in zip(("oldest", "newest"), versions, strict=True):
            text = (ROOT / "locks" / f"{lock}.txt").read_text("utf-8")
            found = re.findall(rf"^{name}==([\d.]+)", text, re.MULTILINE)
            best = min if lock == "oldest" else max
            assert version == best(found, key=lambda v: [*map(int, v.split("."))])
