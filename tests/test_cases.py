"""Models and what the command line makes of them, as files: read them like
documentation.

A file of cases/ is a model, a line of dashes with the options, and the expected output:
the backward graph, or the error. `pytest tests/test_cases.py --rewrite-cases` writes
the present output into the files; what changed is then reviewed.
"""

from __future__ import annotations

from pathlib import Path

import nnef
import pytest
from click.testing import CliRunner, Result
from support.cases import CASES, cases, compare, split

from nnef_grad.commandline.cli import main
from nnef_grad.emit.simplify import REWRITES


def compile_case(path: Path) -> tuple[Result, str]:
    model, options, expected = split(path)
    words = [_in_cases(word) for word in options.split()]
    result = CliRunner().invoke(main, [*words, "--quiet", "-"], input=model.encode())
    return result, expected


def _in_cases(word: str) -> str:
    """An option; a file of rules is one of cases/rules/."""
    return str(CASES / word) if word.startswith("rules/") else word


def rewrites(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite-cases"))


@pytest.mark.parametrize("path", cases("backward"), ids=lambda path: path.stem)
def test_backward(path: Path, request: pytest.FixtureRequest) -> None:
    result, _ = compile_case(path)
    assert result.exit_code == 0, result.stderr
    compare(path, result.stdout, rewrite=rewrites(request))
    if "tract_registry" not in result.stdout:
        nnef.infer_shapes(nnef.parse_string(result.stdout))


@pytest.mark.parametrize(
    ("operation", "index"),
    [(name, i) for name, rewrites in REWRITES.items() for i in range(len(rewrites))],
)
def test_each_rewrite_is_seen_in_a_case(
    operation: str, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the rewrite switched off, some backward graph is another one."""
    kept = list(REWRITES[operation])
    del kept[index]
    monkeypatch.setitem(REWRITES, operation, tuple(kept))
    compiled = map(compile_case, cases("backward"))
    assert any(result.stdout != expected for result, expected in compiled)


@pytest.mark.parametrize("path", cases("errors"), ids=lambda path: path.stem)
def test_error(path: Path, request: pytest.FixtureRequest) -> None:
    result, _ = compile_case(path)
    assert result.exit_code == 2
    assert result.stdout == ""
    compare(path, result.stderr, rewrite=rewrites(request))
