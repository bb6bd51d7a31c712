"""The command line of the formatter."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from nnef_grad.base.errors import NnefGradError, Problem
from nnef_grad.commandline import console
from nnef_grad.commandline.cli import command
from nnef_grad.language.format import format_text
from nnef_grad.storage.files import read_source, write_texts

WOULD_CHANGE = 1


@command("nnef-grad-fmt")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--check", is_flag=True, help="Write nothing; exit 1 if files would change."
)
@console.command_line
def main(files: tuple[str, ...], check: bool) -> None:
    """Bring NNEF files into canonical layout.

    Only white space changes. Files are rewritten in place; '-' reads stdin and writes
    stdout. Files with a mistake are reported, after the others are written.

    \b
    Examples:
      nnef-grad-fmt model.nnef
      nnef-grad-fmt --check models/*.nnef
      nnef-grad model.nnef | nnef-grad-fmt - | less
    """
    changed = False
    problems: list[Problem] = []
    for name in dict.fromkeys(files):
        try:
            changed |= _formatted(name, check=check)
        except NnefGradError as error:
            problems += error.problems
    if problems:
        raise NnefGradError.collect(problems)
    if changed and check:
        sys.exit(WOULD_CHANGE)


def _formatted(name: str, *, check: bool) -> bool:
    """Formats a file, or tells that it would; whether the text is another one."""
    source = console.read_stdin() if name == console.PIPE else read_source(name)
    text = format_text(source)
    changed = text != source.text
    if changed and check:
        console.print_message(f"{source.name}: would change")
    elif name == console.PIPE and not check:
        console.print_result(text)
    elif changed:
        # The target of a symbolic link, not the link.
        write_texts({Path(name).resolve(): text}, overwrite=True)
        console.print_message(f"{name}: changed")
    return changed
