"""Models and the steps that the command line makes of them, or what it says of a mistake,
as files: see `test_cases`.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import nnef
import pytest
from click.testing import CliRunner, Result
from support.cases import CASES, cases, compare, split

import nnef_grad
from nnef_grad.commandline.step_cli import main

COMMAND = "nnef-grad-step"


def compile_case(path: Path, *further: str) -> Result:
    model, options, _ = split(path, COMMAND)
    words = [*shlex.split(options), "--quiet", *further]
    return CliRunner().invoke(main, [*words, "-"], input=model.encode())


@pytest.fixture(autouse=True)
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of losses and optimizers are found from the folder of the cases."""
    monkeypatch.chdir(CASES)


@pytest.mark.parametrize("path", cases("steps"), ids=lambda path: path.stem)
def test_step(path: Path, request: pytest.FixtureRequest) -> None:
    result = compile_case(path)
    assert result.exit_code == 0, result.stderr
    rewrite = bool(request.config.getoption("--rewrite-cases"))
    compare(path, result.stdout, rewrite=rewrite, command=COMMAND)
    nnef.infer_shapes(nnef.parse_string(result.stdout))
    nnef_grad.loads(result.stdout)


@pytest.mark.parametrize("path", cases("step_errors"), ids=lambda path: path.stem)
def test_error(path: Path, request: pytest.FixtureRequest) -> None:
    result = compile_case(path)
    assert result.exit_code == 2
    assert result.stdout == ""
    rewrite = bool(request.config.getoption("--rewrite-cases"))
    compare(path, result.stderr, rewrite=rewrite, command=COMMAND)


@pytest.mark.parametrize("path", cases("step_errors"), ids=lambda path: path.stem)
def test_an_error_writes_nothing(path: Path, tmp_path: Path) -> None:
    result = compile_case(path, "-o", str(tmp_path / "step"))
    assert result.exit_code == 2
    assert not list(tmp_path.iterdir())
