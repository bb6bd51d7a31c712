"""The options of the commands: the page about them, which has an example of each, and their
completion.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner
from support.processes import environment

import nnef_grad
from nnef_grad.base.choices import (
    Dialect,
    Loss,
    Optimizer,
    RuntimeName,
    Target,
    words,
)
from nnef_grad.commandline import step_cli
from nnef_grad.commandline.cli import OPTIONS, Groups, main
from nnef_grad.commandline.step_cli import STEP_OPTIONS
from nnef_grad.frontends import DIALECTS
from nnef_grad.runtimes import RUNTIMES
from nnef_grad.targets import TARGETS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "command-line.md"
HEAD = """# The command line

    nnef-grad MODEL [options]

MODEL is a folder with a graph.nnef, an archive of such files (.tar, .tgz), a file of NNEF 1.0
text, an ONNX file (.onnx), a PyTorch program (.pt2), or `-` for stdin. In the examples, `model.nnef`
and other names stand for your files.

"""
STEP_HEAD = """## nnef-grad-step

    nnef-grad-step MODEL --loss LOSS [options]

MODEL is as for nnef-grad. [Training](training.md) describes losses, optimizers and the result.
It also takes these options of nnef-grad: {shared}.

"""
TAIL = """## Exit codes

| code | meaning |
|---|---|
| 0 | the backward graph, or the step, was written |
| 1 | `--check` found a wrong gradient; the reader of stdout closed it; or a bug in nnef-grad |
| 2 | a mistake in the model or on the command line, or OUT cannot be written; nothing was written |
| 130, 143 | Ctrl-C, or the process was terminated; no partial files are left |

## Completion in a shell

Add one of these lines to complete options, files, and names of tensors:

    eval "$(_NNEF_GRAD_COMPLETE=bash_source nnef-grad)"     # in ~/.bashrc
    eval "$(_NNEF_GRAD_COMPLETE=zsh_source nnef-grad)"      # in ~/.zshrc
    _NNEF_GRAD_COMPLETE=fish_source nnef-grad | source      # in config.fish

For nnef-grad-step, use `_NNEF_GRAD_STEP_COMPLETE`.
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
MASKED = """version 1.0;

graph net( x, mask ) -> ( y )
{
    x = external(shape = [2, 3]);
    mask = external<logical>(shape = [2, 3]);
    w = variable(shape = [1, 3], label = 'w');
    y = select(mask, mul(x, w), 0.0);
}
"""
COLUMNS = """version 1.0;

graph net( x, scale ) -> ( y )
{
    x = external(shape = [3, 2]);
    scale = external(shape = [1, 1]);
    y = mul(tanh(x), scale);
}
"""
RECURRENT = """version 1.0;

extension tract_registry tract_core;

fragment cell( x: tensor<scalar>, h: tensor<scalar>, w: tensor<scalar> ) -> ( new: tensor<scalar> )
{
    new = tanh(x + matmul(h, w));
}

graph net( x ) -> ( y )
{
    x = external(shape = [6, 1, 3]);
    h = variable<scalar>(label = 'h', shape = [1, 1, 3]);
    w = variable<scalar>(label = 'w', shape = [1, 3, 3]);
    y = tract_core_scan(body = 'cell', scan = [('x', x, 0, 1)], full = [('w', w)], state = [('h', h, 'new')],
        output = [('new', 'full', 0, 1)]);
}
"""
RULES = "fragment tanh_vjp( x: tensor<scalar>, y: tensor<scalar>, dy: tensor<scalar> ) -> ( dx: tensor<scalar> ) { dx = dy * (1.0 - y * y); }\n"
STEP_MODEL = """version 1.0;

graph net( x ) -> ( y )
{
    x = external(shape = [4, 3]);
    weight1 = variable(shape = [5, 3], label = 'layer1/weight');
    weight2 = variable(shape = [2, 5], label = 'layer2/weight');
    hidden = tanh(linear(x, weight1, 0.0));
    logits = linear(hidden, weight2, 0.0);
    y = softmax(logits);
}
"""
WORDS = """version 1.0;

graph net( ids ) -> ( y )
{
    ids = external<integer>(shape = [4, 5]);
    table = variable(shape = [9, 3], label = 'words.weight');
    y = gather(table, ids);
}
"""
QUANTIZATION = '"hidden": linear_quantize(min = -1.0, max = 1.0, bits = 8);\n'
COMMANDS: dict[str, tuple[click.Command, Groups]] = {
    "nnef-grad": (main, OPTIONS),
    "nnef-grad-step": (step_cli.main, STEP_OPTIONS),
}


# The examples on the page, by the anchor of their option.
EXAMPLES: dict[str, str] = dict(
    re.findall(
        r'^<a id="(.*?)"></a>.*\n.*\n\n    (.*)$', PAGE.read_text("utf-8"), re.MULTILINE
    )
)


def examples() -> list[Any]:
    return [
        pytest.param(command, option, id=f"{command} {option.name}")
        for command, (_, groups) in COMMANDS.items()
        for option in listed(groups)
    ]


def page() -> str:
    """An entry for each option, with an anchor: options that both commands have are
    described once.
    """
    shared = {text_of(option) for option in chain.from_iterable(OPTIONS.values())}
    own = {
        group: [option for option in found if text_of(option) not in shared]
        for group, found in STEP_OPTIONS.items()
    }
    both = [option for option in listed(STEP_OPTIONS) if text_of(option) in shared]
    links = ", ".join(f"[`--{anchor_of(o)}`](#{anchor_of(o)})" for o in both)
    return (
        HEAD
        + sections(OPTIONS, "##", "")
        + STEP_HEAD.format(shared=links)
        + sections(own, "###", "step-")
        + TAIL
    )


def listed(groups: Groups) -> list[click.Option]:
    return [*chain.from_iterable(groups.values())]


def sections(groups: Groups, level: str, prefix: str) -> str:
    return "".join(
        f"{level} {group}\n\n{''.join(entry(option, prefix) for option in found)}"
        for group, found in groups.items()
        if found
    )


def entry(option: click.Option, prefix: str) -> str:
    """The example is written by hand, and stays."""
    name, text = text_of(option)
    anchor = f"{prefix}{anchor_of(option)}"
    example = EXAMPLES.get(anchor, "")
    return f'<a id="{anchor}"></a>**`{name}`**\n{text}\n\n    {example}\n\n'


def anchor_of(option: click.Option) -> str:
    return max(option.opts, key=len).lstrip("-")


def text_of(option: click.Option) -> tuple[str, str]:
    """The names of an option, and its help."""
    return option.get_help_record(click.Context(main)) or ("", "")


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
    np.savez(tmp_path / "batch.npz", x=np.ones((2, 3)))
    loop = nnef_grad.loads(RECURRENT, unroll=0)
    weights = {"h": np.ones((1, 1, 3), "f4"), "w": np.ones((1, 3, 3), "f4")}
    nnef_grad.save(loop, tmp_path / "recurrent", data=weights)
    for name, text in {
        "model.nnef": MODEL,
        "exported.nnef": EXPORTED,
        "dynamic.nnef": DYNAMIC,
        "masked.nnef": MASKED,
        "columns.nnef": COLUMNS,
        "rules.nnef": RULES,
    }.items():
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("command", "option"), examples())
def test_an_example(command: str, option: click.Option, folder: Path) -> None:
    is_shared = option in listed(OPTIONS)
    example = EXAMPLES[("" if is_shared else "step-") + anchor_of(option)]
    assert any(name in shlex.split(example) for name in option.opts)
    first, *words = shlex.split(example.partition("|")[0])
    assert first == ("nnef-grad" if is_shared else command)
    if command == "nnef-grad-step" and is_shared:
        words += ["--loss", "huber"]
    elif command == "nnef-grad-step":
        write_step_models(folder)
    result = CliRunner().invoke(COMMANDS[command][0], words)
    assert result.exit_code == 0, result.stderr


def write_step_models(folder: Path) -> None:
    """The models that are trained."""
    graph = nnef_grad.loads(STEP_MODEL)
    data = {
        "layer1/weight": np.ones((5, 3), np.float32),
        "layer2/weight": np.ones((2, 5), np.float32),
    }
    for name in ("model", "quantized"):
        nnef_grad.save(graph, folder / name, data=data, overwrite=True)
    (folder / "words.nnef").write_text(WORDS, "utf-8")
    (folder / "quantized" / "graph.quant").write_text(QUANTIZATION, "utf-8")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_lists_every_option_in_its_group(command: str) -> None:
    main, groups = COMMANDS[command]
    text = CliRunner().invoke(main, ["--help"]).stdout
    names = list(groups)
    for group, after in zip(names, [*names[1:], None], strict=True):
        section = text.partition(f"{group}:\n")[2]
        section = section.partition(f"{after}:\n")[0] if after else section
        for option in groups[group]:
            assert all(name in section for name in option.opts)
    assert "--version" in text


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("nnef-grad model.nnef --wr", ["--wrt"]),
        ("nnef-grad model.nnef --wrt hi", ["hidden"]),
        ("nnef-grad model.nnef --wrt x,hi", ["x,hidden"]),
        ("nnef-grad model/ --stop i", ["inputs"]),
        ("nnef-grad model.nnef --outputs a", []),
        ("nnef-grad model.nnef --wrt x,al", []),
        ("nnef-grad layer.onnx --wrt fc", ["fc.weight"]),
        ("nnef-grad none.nnef --wrt x", []),
        ("nnef-grad model.nnef --target tr", ["tract", "tract-standard"]),
        ("nnef-grad model.nnef --outputs y", ["y"]),
        ("nnef-grad model.nnef --input-shape x", ["x"]),
        ("nnef-grad dynamic.nnef --symbol B", ["B"]),
        ("nnef-grad layer.onnx --constant x", ["x"]),
        ("nnef-grad-step model.nnef --train w", ["w"]),
        ("nnef-grad-step model.nnef --output hi", ["hidden"]),
        ("nnef-grad-step model.nnef --loss hu", ["huber"]),
        ("nnef-grad-step model.nnef --optimizer ada", ["adagrad", "adam", "adamw"]),
    ],
)
def test_completion(words: str, found: list[str], folder: Path) -> None:
    if "onnx" in words:
        text = '<ir_version: 8, opset_import: ["" : 17]>\ng (float[2, 3] x) => (float[2, 4] y) { y = MatMul (x, w) }'
        model = pytest.importorskip("onnx").parser.parse_model(text)
        model.graph.node[0].input[1] = "fc.weight"
        weight = model.graph.initializer.add(name="fc.weight", data_type=1, dims=[3, 4])
        weight.float_data.extend([1.0] * 12)
        (folder / "layer.onnx").write_bytes(model.SerializeToString())
    name = words.split()[0]
    room = "step_cli" if name.endswith("step") else "cli"
    program = f"from nnef_grad.commandline.{room} import main; main(prog_name='{name}')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(
            **{f"_{name.upper().replace('-', '_')}_COMPLETE": "bash_complete"},
            COMP_WORDS=words,
            COMP_CWORD=str(len(words.split()) - 1),
        ),
        check=False,
    )
    assert [line.partition(",")[2] for line in done.stdout.split()] == found


def fragments(name: str, first: str) -> set[str]:
    """The fragments of a file of training with such first parameters."""
    text = (ROOT / "nnef_grad" / "training" / name).read_text("utf-8")
    return {*re.findall(rf"^fragment (\w+)\(\s*{first}", text, re.MULTILINE)}


def test_the_words_of_choices_are_those_there_are() -> None:
    assert words(Target) == tuple(TARGETS)
    assert {*words(RuntimeName)} == {*RUNTIMES}
    assert words(Dialect) == DIALECTS
    losses = fragments("losses.nnef", r"output: tensor<scalar>,\s*target")
    assert {*words(Loss)} == losses - {"smoothed"}
    optimizers = fragments("optimizers.nnef", "variable: tensor<scalar>")
    assert {*words(Optimizer)} == optimizers - {"with_decay"}
