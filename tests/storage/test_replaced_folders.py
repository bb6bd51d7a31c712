"""A folder that is replaced is there at any time, also where the process is killed."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.processes import environment

import nnef_grad
from nnef_grad.storage import files

TEXT = """version 1.0;

graph g( x ) -> ( y )
{{
    x = external(shape = [{}]);
    y = exp(x);
}}
"""

LOOP = f"""
import sys, nnef_grad
graphs = [nnef_grad.loads({TEXT!r}.format(n)) for n in (1, 2)]
print("ready", flush=True)
while True:
    for graph in graphs:
        nnef_grad.save(graph, sys.argv[1], overwrite=True)
"""
KILLS = 40


def saved(path: Path, extent: int) -> None:
    graph = nnef_grad.loads(TEXT.format(extent))
    nnef_grad.save(graph, path, overwrite=True)


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="needs an exchange")
def test_random_kills(tmp_path: Path) -> None:
    draw, place = random.Random(0), tmp_path / "last"
    saved(place, 1)
    for _ in range(KILLS):
        program = subprocess.Popen(
            [sys.executable, "-c", LOOP, str(place)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        with program:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            time.sleep(draw.uniform(0.0, 0.05))
            program.kill()
        assert nnef_grad.load(place).tensors["x"].shape in [(1,), (2,)]
    # The next one that writes there tidies up.
    saved(place, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["last"]


def test_a_system_without_exchanges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_exchange_at_once", lambda *_: False)
    place = tmp_path / "last"
    for extent in (1, 2, 3):
        saved(place, extent)
        assert nnef_grad.load(place).tensors["x"].shape == (extent,)
    assert [path.name for path in tmp_path.iterdir()] == ["last"]


@pytest.mark.parametrize("ending", ["", "/"])
def test_what_a_killed_process_has_left(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing is exchanged, the message names the folder that is left."""
    saved(tmp_path / "last", 1)
    left = f".last.abcd1234{files.REPLACED}"
    (tmp_path / "last").rename(tmp_path / left)
    monkeypatch.chdir(tmp_path)
    for path in ("last", "./last", str(tmp_path / "last")):
        for read in (nnef_grad.load, nnef_grad.load_data):
            with pytest.raises(nnef_grad.UsageError, match=f"left it as '.*{left}'"):
                read(path + ending)
    saved(tmp_path / "last", 2)
    assert [path.name for path in tmp_path.iterdir()] == ["last"]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_folder_that_changes_at_the_last_moment_is_put_back(
    at_once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not at_once:
        monkeypatch.setattr(files, "_exchange_at_once", lambda *_: False)
    place, looks = tmp_path / "last", iter([None, nnef_grad.UsageError("changed")])
    saved(place, 1)

    def refuse(_: Path) -> None:
        if (error := next(looks)) is not None:
            raise error

    with files.unfinished_folder(place) as draft:
        saved(draft, 2)
        with pytest.raises(nnef_grad.UsageError, match="changed"):
            files.commit_folder(draft, place, refuse)
    assert nnef_grad.load(place).tensors["x"].shape == (1,)
    assert [path.name for path in tmp_path.iterdir()] == ["last"]
