"""The command line: its arguments and options, by the headings of --help. Examples of all are in
docs/command-line.md. --help, --version and a wrong option do without the compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, pairwise
from math import isfinite
from typing import Any

import click

import nnef_grad
from nnef_grad.base.choices import Target, words
from nnef_grad.commandline.completion import (
    ends,
    inputs,
    named,
    open_sizes,
    outputs,
    tensors,
)

# The values of --stats, the first of which it has without one.
STATISTICS = ("summary", "full")


# Options by the headings of --help.
Groups = dict[str, list[click.Option]]


def option(declaration: str, help: str, **settings: Any) -> click.Option:
    """An option with names, separated by spaces."""
    return click.Option(declaration.split(), help=help, **settings)


class Command(click.Command):
    """A command that lists its options in groups, the general ones in the last, and has
    an option that may be given without its value.

    Attributes:
        groups: the options by their headings in --help.
    """

    def __init__(self, *args: Any, groups: Groups, **settings: Any) -> None:
        self.groups = groups
        super().__init__(*args, **settings)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Gives --stats its value where it has none: another word after it is MODEL. The
        words are kept for messages.
        """
        ctx.obj = tuple(args)
        bare, usual = "--stats", f"--stats={STATISTICS[0]}"
        words = [
            usual if word == bare and after not in STATISTICS else word
            for word, after in pairwise([*args, ""])
        ]
        return super().parse_args(ctx, words)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; passes are watched by whoever asks for it."""
        from nnef_grad.commandline.passes import printed_after

        with printed_after(ctx.params.pop("print_after")):
            return super().invoke(ctx)

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Writes the options, a section for each group."""
        own = [*chain.from_iterable(self.groups.values())]
        others = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
        general = [option for option in others if option not in own]
        *_, last = self.groups
        for group, options in self.groups.items():
            listed = [*options, *(general if group == last else [])]
            with formatter.section(group):
                formatter.write_dl([r for o in listed if (r := o.get_help_record(ctx))])


def command(
    name: str, cls: type[click.Command] = click.Command, **settings: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """A decorator that makes a function a command, with --help and --version."""
    context = {"help_option_names": ["-h", "--help"]}
    version = click.version_option(nnef_grad.__version__, prog_name=name)
    make = click.command(cls=cls, context_settings=context, **settings)
    return lambda function: version(make(function))


def model_command(
    name: str, groups: Groups
) -> Callable[[Callable[..., Any]], click.Command]:
    """The same, of a command with a model and options."""
    model = click.Argument(["model"], metavar="MODEL", type=PATH)
    params = [model, *chain.from_iterable(groups.values())]
    return command(name, Command, params=params, groups=groups)


class Finite(click.FloatRange):
    """A number in a range, in which neither infinity nor NaN are, nor what is almost infinite."""

    def convert(self, *given: Any) -> float:
        """The number of a word."""
        number: float = super().convert(*given)
        # GiB are multiplied to be bytes.
        if not isfinite(number * 2.0**30):
            self.fail(f"{number} is not finite.", *given[1:])
        return number


PATH = click.Path()
FLAG = {"is_flag": True}


def path(metavar: str) -> dict[str, Any]:
    """The settings of a path."""
    return {"type": PATH, "metavar": metavar}


def several(metavar: str) -> dict[str, Any]:
    """The settings of an option that may be repeated."""
    return {"multiple": True, "metavar": metavar}


def one_of(*choices: str) -> dict[str, Any]:
    """The settings of a choice; the first one is the default."""
    return {"type": click.Choice(choices), "default": choices[0], "show_default": True}


_TENSORS = named(tensors, metavar="NAMES")
# Groups stand alone, and are no outputs.
_GROUPED = named(tensors, "all", "inputs", "variables", metavar="NAMES")

# Derivatives other than gradients.
DERIVATIVES = {
    "jacobian": "Compute the whole Jacobian of one output, instead of its product with a "
    "seed.",
    "jvp": "Compute how the outputs move when the tensors of --wrt move along given "
    "vectors: forward mode.",
    "hvp": "Compute the Hessian of the sum of the outputs times a vector, which is an "
    "input.",
    "hessian": "Compute the whole Hessian with respect to one tensor.",
    "laplacian": "Compute, for each example of a batch, the sum of the second derivatives by "
    "each element of one tensor.",
    "divergence": "Compute, for each example of a batch, the sum of the derivatives of each "
    "element of the output by that of the tensor at the same place.",
    "saliency": "Compute how much the largest score of each item moves with each element.",
    "gradient-penalty": "Compute the mean of (|gradient| - 1)^2 over the batch, to train or "
    "differentiate.",
}

OPTIONS: Groups = {
    "Derivatives": [
        option(
            "--wrt",
            "Differentiate with respect to: all (the default), inputs, variables, "
            "or names of tensors, separated by commas.",
            **_GROUPED,
        ),
        option(
            "--outputs",
            "Differentiate these outputs only, separated by commas.",
            **named(outputs, metavar="NAMES"),
        ),
        option(
            "--stop",
            "Treat these tensors as constants, separated by commas: no gradient flows "
            "through them.",
            **_GROUPED,
        ),
        *(
            option(f"--{name} derivative", text, flag_value=name)
            for name, text in DERIVATIVES.items()
        ),
        option(
            "--forward derivative",
            "Differentiate nothing: write MODEL as it was read, in the format of OUT and for "
            "the runtime of --target. Gradient nodes of an ONNX file are gradients there.",
            flag_value="forward",
        ),
        option(
            "--per-example",
            "Compute the derivatives of each example of a batch: axis 0 of all inputs and "
            "outputs counts examples, and variables, which they share, have a gradient for "
            "each.",
            **FLAG,
        ),
        option(
            "--example-axis",
            "Compute derivatives of each example, which another axis counts in some inputs or "
            "outputs, x=1, or none in inputs that all share, x=shared; separated by commas.",
            **named(ends, metavar="NAME=AXIS"),
        ),
        option(
            "--seed",
            "Take the gradient of each output as an input, or use ones, to differentiate the "
            "sum of all output elements.",
            **one_of("input", "ones"),
        ),
        option(
            "--with-outputs", "Also return the outputs of the forward graph.", **FLAG
        ),
        option(
            "--also",
            "Also return these tensors of the forward graph, separated by commas, such as "
            "activations.",
            **_TENSORS,
        ),
    ],
    "Output": [
        option(
            "-o --out",
            "Where to write the backward graph: a file x.nnef; an archive x.tgz or x.tar; "
            "a folder x/ or x; an ONNX file x.onnx. '-' (the default) is stdout.",
            default="-",
            **path("OUT"),
        ),
        option(
            "--split forward",
            "Write two graphs that compute no layer twice: to FORWARD, a MODEL that also "
            "returns the tensors that gradients need, as saved_NAME; to OUT, the backward "
            "graph that takes them. FORWARD has the formats of OUT.",
            **path("FORWARD"),
        ),
        option(
            "--recompute",
            "Keep fewer tensors and compute them again, as NAME_again, so that at most LIMIT "
            "is alive at a time besides inputs, variables and results: a share such as 0.5 of "
            "what is alive without it, or bytes such as 512M.",
            metavar="LIMIT",
        ),
        option(
            "--target",
            "Write a form that a runtime supports and computes correctly: khronos is the "
            "PyTorch interpreter and nnef.Session; tract-standard is tract with standard "
            "operations only; portable is all of them. For files x.onnx: onnx, the default, "
            "is the fastest in ONNX Runtime, and onnx-portable for any engine.",
            **one_of(*words(Target)),
        ),
        option(
            "--force",
            "Replace OUT, FORWARD, and the file of --report, if they exist.",
            **FLAG,
        ),
    ],
    "Reading MODEL": [
        option(
            "--input-shape",
            "Give an input another shape. May be repeated.",
            **named(inputs, metavar="NAME=1,3,64,64"),
        ),
        option(
            "--batch",
            "Give every input the batch size N.",
            type=click.IntRange(min=1),
            metavar="N",
        ),
        option(
            "--dialect",
            "The dialect of MODEL: nnef, the standard, or tract, the output of torch-to-nnef; "
            "by default, as its extension lines say.",
            type=click.Choice(("nnef", "tract")),
        ),
        option(
            "--symbol",
            "Give a symbol, which stands for an open size, a number. May be repeated.",
            **named(open_sizes, metavar="NAME=N"),
        ),
        option(
            "--constant",
            "Make an input a constant: a number for all of its elements, or the arrays in a "
            "file from numpy.savez, named after the inputs. What follows from constants alone "
            "is computed, and conditions among it are decided. May be repeated.",
            **named(inputs, metavar="NAME=X|FILE.npz"),
        ),
        option(
            "--unroll",
            "Unroll a loop, such as a recurrent layer, if it has at most N steps; by default 4 "
            "for the target tract, 64 for onnx, which run loops, and 1,000 for others.",
            type=click.IntRange(min=0),
            metavar="N",
        ),
        option(
            "--rules",
            "Read rules from FILE: fragments named <operation>_vjp.",
            **path("FILE"),
        ),
        option(
            "--expand",
            "Replace these compound operations by their bodies.",
            **several("NAMES"),
        ),
        option(
            "--gelu",
            "The definition of gelu: x * Phi(x), or the standard's body, "
            "x * sigmoid(1.702 * x).",
            **one_of("exact", "sigmoid"),
        ),
        option(
            "--lenient",
            "Repair exporters' known mistakes, with a warning for each.",
            **FLAG,
        ),
    ],
    "Checking": [
        option(
            "--check",
            "Compare each gradient with central differences of MODEL. If one is wrong, write "
            "only the page of --report, and exit with 1.",
            **FLAG,
        ),
        option(
            "--check-seed",
            "The seed of the random numbers of --check.",
            type=click.IntRange(min=0),
            default=0,
            show_default=True,
            metavar="N",
        ),
        option(
            "--check-memory",
            "The most memory that --check may take, in GiB; by default, all of the machine's.",
            type=Finite(min=0, min_open=True),
            metavar="GIB",
        ),
        option(
            "--inputs",
            "Evaluate gradients at arrays from numpy.savez, named after the inputs, or at random "
            "numbers, the default of --check. The page of --report then shows norms and "
            "histograms.",
            **path("FILE.npz|random"),
        ),
        option(
            "--stats",
            "Print the costs of MODEL and the backward graph: operations, parameters, "
            "multiply-adds, and memory in the order as written; with --split, also the size of "
            "saved tensors; with --recompute, also what it saves and adds; with --stats full, "
            "also each operation.",
            type=click.Choice(STATISTICS),
            metavar="[full]",
        ),
        option(
            "--report",
            "Write a page that shows MODEL and the backward graph side by side, with rules, "
            "costs and the results of --check. Any browser opens it offline.",
            **path("FILE.html"),
        ),
    ],
    "Messages": [
        option(
            "--format",
            "The format of errors, warnings and the summary on stderr.",
            **one_of("text", "json"),
        ),
        option("-q --quiet", "Print only errors and warnings.", **FLAG),
        option(
            "--print-after",
            "Print the graph on stderr after each pass of this name, or after all.",
            metavar="PASS|all",
        ),
    ],
}


@model_command("nnef-grad", OPTIONS)
def main(**options: Any) -> None:
    """Compile the NNEF graph MODEL to its backward graph.

    MODEL is a folder with a graph.nnef, an archive of such files (.tar, .tgz), a file of
    NNEF 1.0 text, an ONNX file (.onnx), a TFLite file (.tflite), a PyTorch program (.pt2),
    or '-' for stdin.
    The backward graph is standard NNEF 1.0. It takes the inputs of MODEL and the gradient
    of each output, and returns the gradient of each input and variable. A folder, an
    archive or an ONNX file also gets the data of its variables.

    \b
    Examples:
      nnef-grad model.nnef -o model_bwd.nnef
      nnef-grad model.tgz -o model_bwd.tgz
      nnef-grad model.onnx -o model_bwd.onnx
      nnef-grad model.nnef -o saliency.nnef --wrt inputs --seed ones
      nnef-grad model.nnef --wrt image,conv1 --batch 8 | less
    """
    from nnef_grad.commandline.command import compile_model

    compile_model(**options)
