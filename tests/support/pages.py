"""The snippets of a page: what a page shows is what is printed, and what it lets its reader
do works.

A snippet is a block between fences. Its language says what is done with it, or a comment
on the line before it, such as `<!-- output of: nnef-grad samples/linear.nnef -->`. Blocks
are run in order, in one folder and one Python session for each page.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import click
from click.testing import CliRunner, Result

import nnef_grad
from nnef_grad.base.source import Source
from nnef_grad.commandline import cli, fmt_cli, merge_cli, step_cli
from nnef_grad.language.parser import parse_fragments
from support import processes
from support.cases import split

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"(?:^ *<!-- (?P<note>[^\n]*) -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
# Errors of rounding, which differ between machines.
TINY = re.compile(r"\b\d\.?\d*e-\d\d?\b")
COMMANDS: dict[str, click.Command] = {
    "nnef-grad": cli.main,
    "nnef-grad-step": step_cli.main,
    "nnef-grad-fmt": fmt_cli.main,
    "nnef-grad-merge": merge_cli.main,
}


class Session:
    """A reader who follows a page.

    Attributes:
        folder: the working directory.
        without: the modules that programs which the page has written cannot import.
        names: the names of the Python session.
        printed: what Python has printed since the page last showed it.
        everything: all that Python has printed.
    """

    def __init__(self, folder: Path, without: Sequence[str] = ()) -> None:
        self.folder = folder
        self.without = without
        self.names: dict[str, object] = {}
        self.printed = ""
        self.everything = ""

    def follow(self, page: str) -> str:
        """The page as it ought to be: each block has been run, and shows what is shown."""
        return BLOCK.sub(self._block, page)

    def _block(self, found: re.Match[str]) -> str:
        text = textwrap.dedent(found["text"])
        kind, _, rest = (found["note"] or "").partition(": ")
        done = NOTES[kind](self, rest, text) if kind else self._plain(found, text)
        if done == text or TINY.sub("", done) == TINY.sub("", text):
            return found[0]
        begin, end = (place - found.start() for place in found.span("text"))
        shown = textwrap.indent(done, found["indent"])
        return found[0][:begin] + shown + found[0][end:]

    def _plain(self, found: re.Match[str], text: str) -> str:
        assert found["language"] in LANGUAGES, f"nobody would run this:\n{text}"
        return LANGUAGES[found["language"]](self, text)

    # ---- By language ----

    def python(self, text: str) -> str:
        output = StringIO()
        with redirect_stdout(output):
            exec(compile(text, "<page>", "exec"), self.names)
        self.hear(output.getvalue())
        return text

    def hear(self, printed: str) -> None:
        """What a program has printed."""
        self.printed += printed
        self.everything += printed

    def sh(self, text: str) -> str:
        for line in text.replace("\\\n", "").splitlines():
            program, *words = shlex.split(line, comments=True) or [""]
            assert not program or program in PROGRAMS, f"nobody would run {line}"
            if program:
                PROGRAMS[program](self, words)
        return text

    def console(self, text: str) -> str:
        """Lines such as `$ nnef-grad model.nnef`, each with what it says."""
        lines = [line for line in text.splitlines() if line.startswith("$ ")]
        return "".join(f"{line}\n{invoke(line[2:]).output}" for line in lines)

    def nnef(self, text: str) -> str:
        """A document, whose first lines may be left out, or fragments alone."""
        if re.search(r"^graph ", text, re.MULTILINE):
            nnef_grad.loads(text if text.startswith("version") else HEAD + text)
        else:
            parse_fragments(Source("<page>", text))
        return text

    def js(self, text: str) -> str:
        """What the bindings of JavaScript take: node, where it is, has to be able to read it."""
        if node := shutil.which("node"):
            module = (self.folder / "block.mjs").resolve()
            module.write_text(text, "utf-8")
            subprocess.run([node, "--check", str(module)], check=True, timeout=60)
        return text

    # ---- By the comment before it ----

    def file(self, name: str, text: str) -> str:
        """A file that the reader writes."""
        (self.folder / name).write_text(text, "utf-8")
        return text

    def shown(self, _: str, text: str) -> str:
        """What Python has printed."""
        shown, self.printed = self.printed, ""
        return shown

    def part(self, path: str, text: str) -> str:
        """Lines of a file, in order, wherever it indents them."""
        refuse_others(text, (ROOT / path).read_text("utf-8"), path)
        return text

    def lines(self, command: str, text: str) -> str:
        """Lines of what a command writes to stdout, in order."""
        refuse_others(text, output(command), command)
        return text

    def said(self, command: str, text: str) -> str:
        """Lines of what a command says besides, in order."""
        refuse_others(text, messages(command), command)
        return text

    def case(self, path: str, text: str) -> str:
        """What is said of the model of a case."""
        model, _, _ = split(ROOT / path)
        (self.folder / "model.nnef").write_text(model, "utf-8")
        return errors("nnef-grad model.nnef")


HEAD = """version 1.0;
extension KHR_enable_fragment_definitions;
extension KHR_enable_operator_expressions;
"""


def invoke(command: str) -> Result:
    program, *words = shlex.split(command)
    return CliRunner().invoke(COMMANDS[program], words, prog_name=program)


def refuse_others(text: str, whole: str, place: str) -> None:
    """Raises an error where a line is not in a text, after those before it."""
    lines = (line.strip() for line in whole.splitlines())
    wanted = [line.strip() for line in text.splitlines() if line.strip()]
    assert all(line in lines for line in wanted), f"not in {place}:\n{text}"


def output(command: str) -> str:
    """What it writes to stdout."""
    result = invoke(command)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def head(command: str) -> str:
    """The head of the document that it writes."""
    return output(command).partition("\n{")[0] + "\n"


def messages(command: str) -> str:
    """What it says besides."""
    result = invoke(command)
    assert result.exit_code == 0, result.stderr
    return result.stderr


def errors(command: str) -> str:
    """What it says, and nothing else happens."""
    result = invoke(command)
    assert (result.exit_code, result.stdout) == (2, "")
    return result.stderr


def _command(show: Callable[[str], str]) -> Callable[[Session, str, str], str]:
    return lambda session, command, text: show(command)


NOTES: dict[str, Callable[[Session, str, str], str]] = {
    "output of": _command(output),
    "head of": _command(head),
    "messages of": _command(messages),
    "errors of": _command(errors),
    "errors of case": Session.case,
    "file": Session.file,
    "part of": Session.part,
    "lines of": Session.lines,
    "lines of messages of": Session.said,
    "printed": Session.shown,
}
LANGUAGES: dict[str, Callable[[Session, str], str]] = {
    "python": Session.python,
    "sh": Session.sh,
    "console": Session.console,
    "nnef": Session.nnef,
    "js": Session.js,
}


# ---- What a reader types into a shell ----


Program = Callable[[Session, Sequence[str]], None]


def run(name: str) -> Program:
    """One of our commands."""

    def command(session: Session, words: Sequence[str]) -> None:
        result = CliRunner().invoke(COMMANDS[name], words)
        assert result.exit_code == 0, result.stderr

    return command


def install(session: Session, words: Sequence[str]) -> None:
    """pip is not run: the extras have to exist."""
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    assert words[0] == "install"
    for extras in re.findall(r"\[(.*?)\]", " ".join(words)):
        for extra in extras.split(","):
            assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra


def make(session: Session, words: Sequence[str]) -> None:
    """The target has to exist: the tests are one."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for word in words:
        assert "=" in word or re.search(rf"^{word}:", makefile, re.MULTILINE), word


def python(session: Session, words: Sequence[str]) -> None:
    """A module, a sample, or a program that the page has written."""
    module, *arguments = words[1:] if words[0] == "-m" else words
    as_module = "run_module" if words[0] == "-m" else "run_path"
    is_sample = module.startswith("samples/")
    without = () if is_sample else session.without
    where = str(ROOT / module) if is_sample else module
    program = PYTHON.format(without, [module, *arguments], as_module, where)
    done = processes.python(program)
    assert done.returncode == 0, done.stderr
    session.hear(done.stdout)


PYTHON = """
import runpy, sys
sys.modules.update(dict.fromkeys({!r}, None))
sys.argv = {!r}
runpy.{}({!r}, run_name="__main__")
"""


def files(session: Session, words: Sequence[str]) -> None:
    """What would take long is not run: the files that it is given have to exist."""
    found = [word for word in words if word.startswith(("samples", "tests"))]
    assert found
    assert all((ROOT / name).exists() for name in found)


PROGRAMS: dict[str, Program] = {
    **{name: run(name) for name in COMMANDS},
    "pip": install,
    "make": make,
    "python": python,
    ".venv/bin/python": files,
    "torchrun": files,
}
