"""The command line of the formatter."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

import nnef_grad
from nnef_grad.base.source import Source
from nnef_grad.commandline import console
from nnef_grad.language.format import format_text
from nnef_grad.storage.files import read_source, write_texts

WOULD_CHANGE = 1


class Formatted(NamedTuple):
    """A file and its canonical text."""

    name: str
    source: Source
    text: str

    @property
    def changes(self) -> bool:
        """Whether the file is not in canonical layout."""
        return self.text != self.source.text


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--check", is_flag=True, help="Write nothing; exit 1 if files would change."
)
@click.version_option(nnef_grad.__version__, prog_name="nnef-grad-fmt")
@console.command_line(lambda error, **_: str(error))
def main(files: tuple[str, ...], check: bool) -> None:
    """Bring NNEF files into canonical layout.

    Only white space changes. Files are rewritten in place; '-' reads stdin and writes
    stdout. If one of the files has a mistake, none is written.

    \b
    Examples:
      nnef-grad-fmt model.nnef
      nnef-grad-fmt --check models/*.nnef
      nnef-grad model.nnef | nnef-grad-fmt - | less
    """
    formatted = [_format(name) for name in dict.fromkeys(files)]
    (_report if check else _write)(formatted)


def _format(name: str) -> Formatted:
    source = console.read_stdin() if name == console.PIPE else read_source(name)
    return Formatted(name, source, format_text(source))


def _report(formatted: Sequence[Formatted]) -> None:
    changed = [file for file in formatted if file.changes]
    for file in changed:
        console.print_message(f"{file.source.name}: would change")
    if changed:
        sys.exit(WOULD_CHANGE)


def _write(formatted: Sequence[Formatted]) -> None:
    """Rewrites the files; the target of a symbolic link, not the link."""
    for file in formatted:
        if file.name == console.PIPE:
            console.print_result(file.text)
        elif file.changes:
            write_texts({Path(file.name).resolve(): file.text}, overwrite=True)
            console.print_message(f"{file.name}: changed")
