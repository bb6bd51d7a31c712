"""The command line: reads, calls the library, writes, and turns errors into exit
codes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

import click

import nnef_grad
from nnef_grad.differentiate import Wrt
from nnef_grad.errors import NnefGradError, UsageError
from nnef_grad.files import decode, read_source, write_text
from nnef_grad.model import from_source
from nnef_grad.source import Source

PIPE = "-"
USER_ERROR = 2
INTERNAL_ERROR = 1


def _exit_codes(command: Callable[..., None]) -> Callable[..., None]:
    """A mistake of the user's is told in its own words; anything else is ours, and asks
    to be reported.
    """

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except NnefGradError as error:
            _fail(str(error), USER_ERROR)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(INTERNAL_ERROR)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as error:
            if os.environ.get("NNEF_GRAD_TRACEBACK"):
                raise
            what = f"{type(error).__name__}: {error}"
            _fail(
                f"error: this is a bug of nnef-grad ({what}); NNEF_GRAD_TRACEBACK=1 shows where",
                INTERNAL_ERROR,
            )

    return run


def _fail(message: str, code: int) -> NoReturn:
    click.echo(message, err=True)
    sys.exit(code)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model", metavar="MODEL")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    default=PIPE,
    help="Where to write the backward graph; '-' (the default) is stdout.",
)
@click.option(
    "--wrt",
    metavar="NAMES",
    multiple=True,
    help="Differentiate with respect to: all (the default), inputs, variables, "
    "or names of tensors, separated by commas.",
)
@click.option(
    "--outputs",
    metavar="NAMES",
    multiple=True,
    help="Differentiate these outputs only, separated by commas.",
)
@click.option(
    "--seed",
    type=click.Choice(["input", "ones"]),
    default="input",
    show_default=True,
    help="Take the gradient of each output as an input, or ones: the gradient of the "
    "sum of all output elements.",
)
@click.option(
    "--with-outputs", is_flag=True, help="Return the outputs of the forward graph too."
)
@click.option(
    "--input-shape",
    "input_shapes",
    metavar="NAME=1,3,64,64",
    multiple=True,
    help="Give an input another shape. May be repeated.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    metavar="N",
    help="Give every input the batch size N.",
)
@click.option(
    "--rules",
    metavar="FILE",
    help="Take rules from FILE: fragments named <operation>_vjp.",
)
@click.option("--force", is_flag=True, help="Replace the output file if it exists.")
@click.option("-q", "--quiet", is_flag=True, help="Print errors and warnings only.")
@click.version_option(nnef_grad.__version__, prog_name="nnef-grad")
@_exit_codes
def main(
    model: str,
    output: str,
    wrt: tuple[str, ...],
    outputs: tuple[str, ...],
    seed: str,
    with_outputs: bool,
    input_shapes: tuple[str, ...],
    batch: int | None,
    rules: str | None,
    force: bool,
    quiet: bool,
) -> None:
    """Compile the NNEF graph MODEL to its backward graph.

    MODEL is a file of NNEF 1.0 text, or '-' for stdin. The backward graph is standard
    NNEF 1.0: its inputs are those of MODEL and the gradient of each output, its outputs
    the gradient of each input and variable.

    \b
    Examples:
      nnef-grad model.nnef -o model_bwd.nnef
      nnef-grad model.nnef -o saliency.nnef --wrt inputs --seed ones
      nnef-grad model.nnef --wrt image,conv1 --batch 8 | less
    """
    _refuse_existing(output, force)
    shapes = dict(map(_parse_shape, input_shapes))
    graph = from_source(_read(model), input_shapes=shapes, batch=batch)
    backward = nnef_grad.differentiate(
        graph,
        wrt=_wrt(_split(wrt)),
        outputs=_split(outputs) or None,
        seed=seed,  # type: ignore[arg-type]
        with_outputs=with_outputs,
        rules=nnef_grad.load_rules(rules) if rules is not None else None,
    )
    _write(output, nnef_grad.dumps(backward), force)
    for warning in backward.warnings:
        click.echo(f"warning: {warning}", err=True)
    if not quiet:
        click.echo(nnef_grad.summary(graph, backward), err=True)


def _refuse_existing(output: str, force: bool) -> None:
    """Said before the work is done, not after it."""
    if output != PIPE and not force and Path(output).exists():
        raise UsageError(f"'{output}' exists already: use --force to replace it")


def _read(model: str) -> Source:
    return (
        decode(sys.stdin.buffer.read(), "<stdin>")
        if model == PIPE
        else read_source(model)
    )


def _write(output: str, text: str, force: bool) -> None:
    if output == PIPE:
        click.echo(text, nl=False)
    else:
        write_text(Path(output), text, overwrite=force)


def _split(values: Sequence[str]) -> list[str]:
    return [
        name.strip() for value in values for name in value.split(",") if name.strip()
    ]


def _wrt(names: list[str]) -> Wrt:
    """A word for a group stands alone; it would be ambiguous among names."""
    if not names:
        return "all"
    return names[0] if len(names) == 1 else names


def _parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, extents = text.partition("=")
    try:
        if not equals:
            raise ValueError
        return name.strip(), tuple(
            int(extent) for extent in extents.split(",") if extent.strip()
        )
    except ValueError:
        raise UsageError(
            f"--input-shape wants NAME=EXTENT,EXTENT,... and got '{text}'"
        ) from None
