"""README as a stranger follows it: each command in a shell, in the folder of a checkout, in a
new environment in which the project is installed as README says.

Other packages are those of the environment that runs the tests, so that this one is as new
as these: with the newest, in `make test-newest`.
"""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.pages import BLOCK, ROOT, TINY

pytest.importorskip("onnx")

# What .ci/run runs by itself, and what no checkout has.
ELSEWHERE = ("make ",)
IGNORED = shutil.ignore_patterns(".*", "__pycache__", "site", "dist", "build")
TEXT = (ROOT / "README.md").read_text("utf-8")


class Reader:
    """Someone in the folder of a checkout, with an environment of their own."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "nnef-grad"
        shutil.copytree(ROOT, self.checkout, ignore=IGNORED)
        venv.create(folder / "venv", with_pip=True)
        base = str(folder / "venv")
        places = sysconfig.get_paths(vars={"base": base, "platbase": base})
        # As if they had been installed: pip finds them there.
        others = Path(places["purelib"], "others.pth")
        others.write_text("\n".join(site.getsitepackages()))
        path = os.pathsep.join([places["scripts"], os.environ["PATH"]])
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        self.environment = {**kept, "PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def run(self, command: str, given: str | None = None) -> str:
        """What a command prints."""
        done = subprocess.run(
            command, shell=True, input=given, capture_output=True, text=True,
            cwd=self.checkout, env=self.environment, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(tmp_path_factory.mktemp("reader"))


def commands(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.partition("#")[0].strip() and not line.startswith(ELSEWHERE):
            yield line


def same(found: str, shown: str) -> bool:
    return TINY.sub("", found).split() == TINY.sub("", shown).split()


def test_every_command(reader: Reader) -> None:
    printed, count = "", 0
    for block in BLOCK.finditer(TEXT):
        language, text = block["language"], block["text"]
        if language == "sh":
            for command in commands(text):
                reader.run(command)
                count += 1
        elif language == "console":
            command, _, shown = text.partition("\n")
            assert same(reader.run(command.removeprefix("$ ")), shown), command
            count += 1
        elif language == "python":
            printed = reader.run("python -", text)
            count += 1
        elif language == "nnef":
            _, _, path = block["note"].rpartition(" ")
            shown = reader.run(
                f"nnef-grad {path}" if "lines" in block["note"] else f"cat {path}"
            )
            assert {*map(str.strip, text.splitlines())} <= {
                *map(str.strip, shown.splitlines())
            }
        else:
            assert block["note"] == "printed", text
            assert same(printed, text), text
    assert count > 4
    # What runs is what was installed, and not the folder that stands there.
    where = "import nnef_grad; print(nnef_grad.__file__)"
    assert "site-packages" in reader.run("python -I -", where)
