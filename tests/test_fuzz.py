"""The fuzzer itself, and the first few of its inputs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fuzz import fuzz
from fuzz.broken import ACCEPTED
from fuzz.inputs import Input
from fuzz.kinds import KINDS, make_input
from fuzz.worker import examine, request_of

MODEL = (
    b"version 1.0;\ngraph g( x ) -> ( y ) { x = external(shape = [2]); y = exp(x); }"
)


@pytest.mark.parametrize("kind", ["grammar", "network", "mutation"])
def test_the_first_inputs(kind: str) -> None:
    outcomes = {examine(make_input(f"tests:{i}", [kind])) for i in range(100)}
    assert len(outcomes) > 1


def test_some_networks_are_accepted() -> None:
    seeds = [f"tests:{i}" for i in range(30)]
    outcomes = [examine(make_input(seed, ["network"])) for seed in seeds]
    assert 0 < outcomes.count(ACCEPTED) < 30


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_stands_for_one_input(kind: str) -> None:
    assert make_input("tests:1", [kind]) == make_input("tests:1", [kind])
    assert make_input("tests:1", [kind]).data != make_input("tests:2", [kind]).data


def test_a_worker_outlives_its_process() -> None:
    worker = fuzz.Worker()
    request = request_of(Input(MODEL))
    assert worker.run(request)["outcome"] == ACCEPTED
    assert worker.process is not None
    worker.process.kill()
    failure = fuzz.failure_of(worker.run(request))
    assert failure is not None
    assert failure.outcome == "Crash"
    assert worker.run(request)["outcome"] == ACCEPTED
    worker.stop()


def test_a_failing_input_is_made_smaller() -> None:
    data = b"one\ntwo\nthree\nfour and more\nfive\n"

    def fails(some: bytes) -> bool:
        return b"t" in some and b"more" in some

    assert fuzz.minimise(data, fails, seconds=10.0) == b"tmore"


def test_what_takes_too_long_is_not_made_smaller() -> None:
    def fails(some: bytes) -> bool:
        time.sleep(0.01)
        return len(some) > 50_000

    assert len(fuzz.minimise(b"x" * 100_000, fails, seconds=0.02)) > 50_000


def test_a_saved_input_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "FAILURES", tmp_path / "failures")
    item = Input(b"\xff\n# fuzz \n", {"wrt": ["x"], "batch": 10**30})
    assert fuzz.read(fuzz.save(item)) == item
    plain = tmp_path / "plain.nnef"
    plain.write_bytes(MODEL)
    assert fuzz.read(plain) == Input(MODEL)


def test_a_short_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fuzz, "FAILURES", tmp_path)
    options = ["--minutes", "0.02", "--jobs", "1", "--seed", "1", "--kinds", "network"]
    assert fuzz.main(options) == 0
    assert "seed 1" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
