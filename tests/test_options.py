"""The options of the command: the page about them, their examples, their completion."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from support.processes import environment

import nnef_grad
from nnef_grad.cli import main
from nnef_grad.options import OPTIONS, Option

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "command-line.md"
HEAD = """# The command line

    nnef-grad MODEL [options]

MODEL is a folder with a graph.nnef, an archive of such files (.tar, .tgz), a file of NNEF 1.0
text, or `-` for stdin. Every option is below, with an example. The page is made of the options,
and a test runs the examples.

"""
TAIL = """## Exit codes

| code | meaning |
|---|---|
| 0 | the backward graph was written |
| 1 | `--check` found a wrong gradient; the reader of stdout went away; or a bug of nnef-grad |
| 2 | a mistake in the model or on the command line, or OUT cannot be written; nothing was |
| 130, 143 | Ctrl-C, or the process was terminated; nothing half-written is left |

## Completion in a shell

Options, files, and the names of the tensors of MODEL are completed after one of

    eval "$(_NNEF_GRAD_COMPLETE=bash_source nnef-grad)"     # in ~/.bashrc
    eval "$(_NNEF_GRAD_COMPLETE=zsh_source nnef-grad)"      # in ~/.zshrc
    _NNEF_GRAD_COMPLETE=fish_source nnef-grad | source      # in config.fish
"""
MODEL = """version 1.0;

graph net( x ) -> ( y )
{
    x = external(shape = [2, 3]);
    w = variable(shape = [3, 4], label = 'w');
    hidden = matmul(x, w);
    y = softmax(gelu(hidden));
}
"""
EXPORTED = MODEL.replace("variable(", "variable<scalar>(")
DYNAMIC = """version 1.0;

extension tract_registry tract_core;
extension tract_symbol B;

graph net( x ) -> ( y )
{
    x = tract_core_external(shape = [B, 3], datum_type = 'f32');
    w = variable<scalar>(label = 'w', shape = [4, 3]);
    y = tract_core_erf(linear(x, w, 0.0));
}
"""
RULES = "fragment tanh_vjp( x: tensor<scalar>, y: tensor<scalar>, dy: tensor<scalar> ) -> ( dx: tensor<scalar> ) { dx = dy * (1.0 - y * y); }\n"


GROUPS = list(OPTIONS)


def options() -> list[Option]:
    return [option for option in main.params if isinstance(option, Option)]


def page() -> str:
    sections = "".join(
        f"## {group}\n\n{''.join(map(entry, found))}"
        for group, found in OPTIONS.items()
    )
    return HEAD + sections + TAIL


def entry(option: Option) -> str:
    name, text = option.get_help_record(click.Context(main)) or ("", "")
    return f"**`{name}`**\n{text}\n\n    {option.example}\n\n"


def test_the_page_is_that_of_the_options(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite-cases"):
        PAGE.write_text(page(), "utf-8")
    assert PAGE.read_text("utf-8") == page()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything that the examples read."""
    graph = nnef_grad.loads(MODEL)
    data = {"w": np.ones((3, 4), np.float32)}
    nnef_grad.save(graph, tmp_path / "model", data=data)
    nnef_grad.save(graph, tmp_path / "model.tgz", data=data)
    for name, text in {
        "model.nnef": MODEL,
        "exported.nnef": EXPORTED,
        "dynamic.nnef": DYNAMIC,
        "rules.nnef": RULES,
    }.items():
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("option", options(), ids=lambda option: option.name)
@pytest.mark.usefixtures("folder")
def test_an_example(option: Option) -> None:
    assert any(name in shlex.split(option.example) for name in option.opts)
    words = shlex.split(option.example.partition("|")[0])
    result = CliRunner().invoke(main, words[1:])
    assert result.exit_code == 0, result.stderr


def test_the_help_lists_every_option_in_its_group() -> None:
    text = CliRunner().invoke(main, ["--help"]).stdout
    for group, after in zip(GROUPS, [*GROUPS[1:], None], strict=True):
        section = text.partition(f"{group}:\n")[2]
        section = section.partition(f"{after}:\n")[0] if after else section
        for option in OPTIONS[group]:
            assert all(name in section for name in option.opts)
    assert "--version" in text


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("nnef-grad model.nnef --wr", ["--wrt"]),
        ("nnef-grad model.nnef --wrt hi", ["hidden"]),
        ("nnef-grad model.nnef --wrt x,hi", ["x,hidden"]),
        ("nnef-grad model/ --stop i", ["inputs"]),
        ("nnef-grad none.nnef --wrt x", []),
        ("nnef-grad model.nnef --target tr", ["tract"]),
    ],
)
def test_completion(words: str, found: list[str], folder: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from nnef_grad.cli import main; main(prog_name='nnef-grad')",
        ],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(
            _NNEF_GRAD_COMPLETE="bash_complete",
            COMP_WORDS=words,
            COMP_CWORD=str(len(words.split()) - 1),
        ),
        check=False,
    )
    assert [line.partition(",")[2] for line in done.stdout.split()] == found
