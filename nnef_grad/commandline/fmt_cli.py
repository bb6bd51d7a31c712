"""The command line of the formatter."""

from __future__ import annotations

import sys
from pathlib import Path

import click

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
    stdout. If one of the files has a mistake, none is written.

    \b
    Examples:
      nnef-grad-fmt model.nnef
      nnef-grad-fmt --check models/*.nnef
      nnef-grad model.nnef | nnef-grad-fmt - | less
    """
    sources = {
        name: console.read_stdin() if name == console.PIPE else read_source(name)
        for name in dict.fromkeys(files)
    }
    texts = {name: format_text(source) for name, source in sources.items()}
    changed = [name for name in sources if texts[name] != sources[name].text]
    if check:
        for name in changed:
            console.print_message(f"{sources[name].name}: would change")
        sys.exit(WOULD_CHANGE if changed else 0)
    for name, text in texts.items():
        if name == console.PIPE:
            console.print_result(text)
        elif name in changed:
            # The target of a symbolic link, not the link.
            write_texts({Path(name).resolve(): text}, overwrite=True)
            console.print_message(f"{name}: changed")
