"""The command line that puts trained values back into a model."""

from __future__ import annotations

import click

from nnef_grad.commandline import console
from nnef_grad.commandline.cli import PATH, command


@command("nnef-grad-merge")
@click.argument("model", metavar="MODEL", type=PATH)
@click.argument("trained", metavar="TRAINED...", nargs=-1, required=True, type=PATH)
@click.option(
    "-o", "--out", metavar="OUT", required=True, type=PATH,
    help="Where to write the model: a folder x/ or x; an archive x.tgz or x.tar.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
@console.command_line
def main(model: str, trained: tuple[str, ...], out: str, force: bool) -> None:
    """Write MODEL with TRAINED values.

    TRAINED is the folder of a step, a checkpoint, or a folder with the files of some
    variables, named after their labels or names; the last of several has priority.
    Adapters are added to their variables. Everything else in MODEL stays as it is.

    \b
    Examples:
      nnef-grad-merge model/ checkpoint/ -o tuned/
      nnef-grad-merge model/ step/ trained/ -o tuned.tgz
    """
    from nnef_grad.commandline.opening import output_path
    from nnef_grad.training.merge import merge

    out = output_path(out, model)
    count = len(merge(model, trained, out, overwrite=force))
    console.print_message(f"{out}: {count} variable{'s' if count != 1 else ''} changed")
