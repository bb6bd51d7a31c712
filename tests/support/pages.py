"""Pages of the documentation: what they show is brought up to date, and what they tell the
reader to run is run, in order.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

EXAMPLES = re.compile(
    r"(?:<!-- (?P<kind>file|part of): (?P<path>\S+) -->\n)?"
    r"```(?P<language>\w*)\n(?P<text>.*?)```\n",
    re.DOTALL,
)
# Runs a line such as `nnef-grad-step model/ --loss huber`.
Command = Callable[[str], None]


def up_to_date(
    page: Path, change: Callable[[str], str], request: pytest.FixtureRequest
) -> None:
    """Rewrites a page, or asserts that there is nothing to change."""
    text = page.read_text("utf-8")
    current = change(text)
    if request.config.getoption("--rewrite-cases"):
        page.write_text(current, "utf-8")
    else:
        assert current == text


def run_examples(page: Path, folder: Path, commands: Mapping[str, Command]) -> None:
    """Writes the files that a page shows, and runs its Python and its commands.

    Args:
        page: the page.
        folder: where its files are; the working directory.
        commands: what runs a line, by its first word.
    """
    names: dict[str, object] = {}
    for example in EXAMPLES.finditer(page.read_text("utf-8")):
        if example["kind"] == "file":
            (folder / example["path"]).write_text(example["text"], "utf-8")
        elif example["kind"] == "part of":
            assert example["text"] in (page.parents[1] / example["path"]).read_text()
        elif example["language"] == "python":
            exec(example["text"], names)
        elif example["language"] == "sh":
            for line in example["text"].splitlines():
                commands[line.split()[0]](line)


def invoke(command: click.Command, words: str) -> Result:
    """What a command does with the words of a line, without its own name."""
    return CliRunner().invoke(command, shlex.split(words))


def runs(command: click.Command) -> Command:
    """Runs the lines of a command, which must succeed."""

    def run(line: str) -> None:
        result = invoke(command, line.partition(" ")[2])
        assert result.exit_code == 0, result.stderr

    return run
