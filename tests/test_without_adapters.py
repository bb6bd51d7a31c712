"""An adapter can be deleted: what does not import it is whole without it, and the compiler
passes its tests without any.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import resolve_name
from pathlib import Path

import pytest

from nnef_grad import differentiate, dumps, load

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "samples" / "mlp.nnef"
ADAPTERS = (
    "frontends/onnx",
    "frontends/torch",
    "frontends/tract",
    "targets",
    "reports",
    "interop",
    "runtimes",
    "runtimes/torch",
    "torch",
    "training",
    "commandline",
)
COMPILER = ("base", "language", "graph", "ops", "emit", "autodiff", "interpreter")


def modules(folder: Path, package: str = "nnef_grad.") -> dict[str, Path]:
    """The files of a package, by the names of their modules."""
    paths = sorted(folder.rglob("*.py"))
    steps = [path.relative_to(folder).with_suffix("").parts for path in paths]
    names = (s[:-1] if s[-1] == "__init__" else s for s in steps)
    words = (package + ".".join(name) for name in names)
    return dict(zip((w.rstrip(".") for w in words), paths, strict=True))


def imports(statements: list[ast.stmt]) -> Iterator[ast.ImportFrom]:
    """What a module imports as it is imported."""
    for statement in statements:
        if isinstance(statement, ast.ImportFrom):
            yield statement
        elif isinstance(statement, (ast.ClassDef, ast.Try)):
            yield from imports(statement.body)


def absolute(statement: ast.ImportFrom, name: str, path: Path) -> str:
    """The module that a module with that name imports from."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return resolve_name("." * statement.level + (statement.module or ""), package)


def lost(adapter: str, known: Mapping[str, Path]) -> set[str]:
    """The modules of an adapter, and those that import them, or others that do."""
    needed = {
        name: {name.rpartition(".")[0]}
        | {
            place
            for statement in imports(ast.parse(path.read_text("utf-8")).body)
            for module in (absolute(statement, name, path),)
            for place in (module, *(f"{module}.{a.name}" for a in statement.names))
        }
        for name, path in known.items()
    }
    start = "nnef_grad." + adapter.replace("/", ".")
    gone = {name for name in known if f"{name}.".startswith(f"{start}.")}
    while more := {name for name in needed.keys() - gone if needed[name] & gone}:
        gone |= more
    return gone


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_what_does_not_import_an_adapter_is_whole_without_it(
    adapter: str, tmp_path: Path
) -> None:
    copy = shutil.copytree(ROOT / "nnef_grad", tmp_path / "nnef_grad")
    shutil.copytree(ROOT / "grammars", tmp_path / "grammars")
    known = modules(copy)
    gone = lost(adapter, known)
    rooms = {name.split(".")[1] for name in gone}
    assert rooms.isdisjoint({*COMPILER, "storage", "model"})
    shutil.rmtree(copy / adapter)
    left = sorted(known.keys() - gone - {"nnef_grad.__main__"})
    program = f"""
from importlib import import_module
for name in {left}:
    import_module(name)
import nnef_grad
print(nnef_grad.__file__)
backward = nnef_grad.differentiate(nnef_grad.load({str(SAMPLE)!r}))
print(nnef_grad.dumps(backward), end="")
"""
    place, text = run(tmp_path, "-c", program).split("\n", 1)
    assert Path(place).is_relative_to(tmp_path)
    assert text == dumps(differentiate(load(SAMPLE)))


# Tests of a public name for each adapter, too.
ALL_NAMES = "tests/graph/test_display.py::test_only_public_names_are_listed"
PLUGIN = """
import traceback
from pathlib import Path
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        return (yield)
    except ModuleNotFoundError as error:
        # A test that calls for an adapter itself, by a public name, is not one of these.
        files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        own = [Path(file) for file in files if file.startswith(str(Path.cwd()))]
        places = [file for file in own if file.name != "lazy.py"]
        is_compiler = places[-1].relative_to(Path.cwd()).parts[1] in COMPILER
        if is_compiler or not error.name.startswith("nnef_grad."):
            raise
        pytest.skip(str(error))
"""


@pytest.mark.thorough
def test_the_compiler_passes_its_tests_without_adapters(tmp_path: Path) -> None:
    """All tests of its rooms that import no adapter."""
    for name in ("nnef_grad", "tests", "grammars", "samples", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    known = modules(tmp_path / "nnef_grad") | modules(tmp_path / "tests", "")
    for adapter in ADAPTERS:
        known = {name: known[name] for name in known.keys() - lost(adapter, known)}
        # One may have gone with another.
        shutil.rmtree(tmp_path / "nnef_grad" / adapter, ignore_errors=True)
    rooms = tuple(f"{room}.test_" for room in (*COMPILER, "storage"))
    tests = sorted(str(known[name]) for name in known if name.startswith(rooms))
    (tmp_path / "plugin.py").write_text(
        f"COMPILER = {(*COMPILER, 'storage')}\n{PLUGIN}"
    )
    options = ("-q", "-p", "plugin", "-p", "no:cacheprovider", "-m", "not thorough")
    report = run(tmp_path, "-m", "pytest", *options, f"--deselect={ALL_NAMES}", *tests)
    passed = re.search(r"(\d+) passed", report)
    assert passed is not None, report
    assert int(passed[1]) > 1000, report
