"""An adapter can be deleted: what does not import it is whole without it, and the compiler
passes its tests without any.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
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


def modules(package: Path) -> dict[str, Path]:
    """The files of a package, by the names of their modules."""
    paths = sorted(package.rglob("*.py"))
    steps = [path.relative_to(package.parent).with_suffix("").parts for path in paths]
    names = (s[:-1] if s[-1] == "__init__" else s for s in steps)
    return dict(zip(map(".".join, names), paths, strict=True))


def imports(statements: list[ast.stmt]) -> Iterator[ast.ImportFrom]:
    """What a module imports as it is imported."""
    for statement in statements:
        if isinstance(statement, ast.ImportFrom):
            yield statement
        elif isinstance(statement, (ast.ClassDef, ast.Try)):
            yield from imports(statement.body)


def lost(adapter: str, known: Mapping[str, Path]) -> set[str]:
    """The modules of an adapter, and those that import them, or others that do."""
    needed = {
        name: {name.rpartition(".")[0]}
        | {
            place
            for statement in imports(ast.parse(path.read_text("utf-8")).body)
            for alias in statement.names
            for place in (statement.module or "", f"{statement.module}.{alias.name}")
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


TESTS = (
    "language/test_parser.py",
    "graph/test_names.py",
    "graph/test_printer.py",
    "ops/test_shapes.py",
    "emit/test_builder.py",
    "autodiff/test_differentiate.py",
    "interpreter/test_execution.py",
)


@pytest.mark.thorough
def test_the_compiler_passes_its_tests_without_adapters(tmp_path: Path) -> None:
    for name in ("nnef_grad", "tests", "grammars", "samples"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for adapter in ADAPTERS:
        # One may have gone with another.
        shutil.rmtree(tmp_path / "nnef_grad" / adapter, ignore_errors=True)
    tests = [f"tests/{name}" for name in TESTS]
    run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
