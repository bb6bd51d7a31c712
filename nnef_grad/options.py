"""The arguments and options of `nnef-grad`: their groups in --help, and an example of
each, which the page about the command line shows.
"""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

import nnef_grad

DIFFERENTIATING = "What to differentiate"
WRITING = "What to write"
READING = "How to read MODEL"
CHECKING = "Checking"
MESSAGES = "Messages"
GROUPS = (DIFFERENTIATING, WRITING, READING, CHECKING, MESSAGES)


class Option(click.Option):
    """An option.

    Attributes:
        group: the heading that it is listed under.
        example: a command that uses it.
    """

    def __init__(
        self, declaration: str, group: str, example: str, help: str, **settings: Any
    ) -> None:
        self.group = group
        self.example = example
        super().__init__(declaration.split(), help=help, **settings)


class Command(click.Command):
    """A command that lists its options in groups."""

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Writes the options, a section for each group."""
        rows: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
        for option in self.get_params(ctx):
            row = option.get_help_record(ctx)
            if row is not None and isinstance(option, click.Option):
                rows[getattr(option, "group", MESSAGES)].append(row)
        for group, found in rows.items():
            with formatter.section(group):
                formatter.write_dl(found)


def complete_names(
    ctx: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes the last of several names of tensors, for a shell."""
    before, comma, last = incomplete.rpartition(",")
    # MODEL is among the rest, as the option before the cursor has no value yet.
    model = ctx.params.get("model") or next(iter(ctx.args), "")
    try:
        graph = nnef_grad.load(model)
    except nnef_grad.NnefGradError:
        return []
    names = ["all", "inputs", "variables", *graph.tensors]
    return [
        CompletionItem(f"{before}{comma}{name}")
        for name in names
        if name.startswith(last)
    ]


_PATH = click.Path()

PARAMETERS: list[click.Parameter] = [
    click.Argument(["model"], metavar="MODEL", type=_PATH),
    Option(
        "-o --output",
        WRITING,
        "nnef-grad model.tgz -o model_bwd.tgz",
        "Where to write the backward graph: a file x.nnef; an archive x.tgz or x.tar; "
        "a folder x/ or x. '-' (the default) is stdout.",
        metavar="OUT",
        default="-",
        type=_PATH,
    ),
    Option(
        "--wrt",
        DIFFERENTIATING,
        "nnef-grad model.nnef --wrt x,hidden",
        "Differentiate with respect to: all (the default), inputs, variables, "
        "or names of tensors, separated by commas.",
        metavar="NAMES",
        multiple=True,
        shell_complete=complete_names,
    ),
    Option(
        "--outputs",
        DIFFERENTIATING,
        "nnef-grad model.nnef --outputs y",
        "Differentiate these outputs only, separated by commas.",
        metavar="NAMES",
        multiple=True,
        shell_complete=complete_names,
    ),
    Option(
        "--stop",
        DIFFERENTIATING,
        "nnef-grad model.nnef --stop hidden",
        "Treat these tensors as constants, separated by commas: no gradient flows "
        "through them.",
        metavar="NAMES",
        multiple=True,
        shell_complete=complete_names,
    ),
    Option(
        "--jacobian",
        DIFFERENTIATING,
        "nnef-grad model.nnef --jacobian --wrt x",
        "Compute the whole Jacobian of one output, instead of its product with a seed.",
        is_flag=True,
    ),
    Option(
        "--seed",
        DIFFERENTIATING,
        "nnef-grad model.nnef --wrt inputs --seed ones",
        "Take the gradient of each output as an input, or use ones, for the gradient "
        "of the sum of all output elements.",
        type=click.Choice(["input", "ones"]),
        default="input",
        show_default=True,
    ),
    Option(
        "--with-outputs",
        DIFFERENTIATING,
        "nnef-grad model.nnef --with-outputs",
        "Return the outputs of the forward graph too.",
        is_flag=True,
    ),
    Option(
        "--input-shape",
        READING,
        "nnef-grad model.nnef --input-shape x=8,3",
        "Give an input another shape. May be repeated.",
        metavar="NAME=1,3,64,64",
        multiple=True,
    ),
    Option(
        "--batch",
        READING,
        "nnef-grad model.nnef --batch 8",
        "Give every input the batch size N.",
        type=click.IntRange(min=1),
        metavar="N",
    ),
    Option(
        "--rules",
        READING,
        "nnef-grad model.nnef --rules rules.nnef",
        "Read rules from FILE: fragments named <operation>_vjp.",
        metavar="FILE",
        type=_PATH,
    ),
    Option(
        "--expand",
        READING,
        "nnef-grad model.nnef --expand softmax,linear",
        "Replace these compound operations by their bodies.",
        metavar="NAMES",
        multiple=True,
    ),
    Option(
        "--gelu",
        READING,
        "nnef-grad model.nnef --gelu sigmoid",
        "The definition of gelu: x * Phi(x), or the standard's body, "
        "x * sigmoid(1.702 * x).",
        type=click.Choice(["exact", "sigmoid"]),
        default="exact",
        show_default=True,
    ),
    Option(
        "--lenient",
        READING,
        "nnef-grad exported.nnef --lenient -o model_bwd.nnef",
        "Repair known mistakes of exporters, with a warning for each repair.",
        is_flag=True,
    ),
    Option(
        "--target",
        WRITING,
        "nnef-grad model/ --target tract -o model_bwd/",
        "Write a form that these runtimes support and compute correctly: khronos is "
        "the PyTorch interpreter and nnef.Session, portable is all of them.",
        type=click.Choice(["nnef", "khronos", "tract", "onnx", "portable"]),
        default="nnef",
        show_default=True,
    ),
    Option(
        "--check",
        CHECKING,
        "nnef-grad model/ --check -o model_bwd/",
        "Compare each gradient with central differences of MODEL before anything is "
        "written; exit with 1 if one is wrong.",
        is_flag=True,
    ),
    Option(
        "--check-seed",
        CHECKING,
        "nnef-grad model/ --check --check-seed 1 -o model_bwd/",
        "The seed of the random numbers of --check.",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        metavar="N",
    ),
    Option(
        "--check-memory",
        CHECKING,
        "nnef-grad model/ --check --check-memory 4 -o model_bwd/",
        "The most memory that --check may take, in GiB; by default that of the machine.",
        type=click.FloatRange(min=0, min_open=True),
        metavar="GIB",
    ),
    Option(
        "--format",
        MESSAGES,
        "nnef-grad model.nnef --format json -o model_bwd.nnef",
        "The format of errors, warnings and the summary on stderr.",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
    ),
    Option(
        "--force",
        WRITING,
        "nnef-grad model.nnef -o model_bwd.nnef --force",
        "Replace OUT if it exists.",
        is_flag=True,
    ),
    Option(
        "-q --quiet",
        MESSAGES,
        "nnef-grad model.nnef -q | less",
        "Print errors and warnings only.",
        is_flag=True,
    ),
]
