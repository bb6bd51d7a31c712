"""What must hold after a command, whatever its input.

The exit code is 0 or 2, and 1 only if --check finds a difference. There is no traceback.
Nothing but the output is changed, and that only on success; then it can be read again,
and has nothing from outside of the model.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import nnef_grad
from fuzz.broken import ACCEPTED, Broken, OverBudget, place_in
from fuzz.budget import seconds_for
from fuzz.inputs import Command, Input
from fuzz.places import EVIL, LETTER, MARK, furnish, snapshot
from fuzz.processes import Ended, run
from nnef_grad.base.errors import NnefGradError
from nnef_grad.storage.output import ModelFormat, format_of

REFUSED = "refused"
WRONG = "a wrong gradient"
_NAMES = {0: ACCEPTED, 1: WRONG, 2: REFUSED}
_BUGS = re.compile(r"this is a bug in|Exception ignored|\.py:\d+: \w*Warning")
# A text that is longer is not read again.
LONG = 2_000_000


def examine_command(item: Input, command: Command) -> tuple[str, float]:
    """The outcome of a command, and the part of its budget that it took.

    Raises:
        Exception: something that must hold does not.
    """
    root = Path(tempfile.mkdtemp(prefix="nnef-grad-fuzz-")).resolve()
    try:
        return _examine(item, command, root)
    finally:
        shutil.rmtree(root)


def _examine(item: Input, command: Command, root: Path) -> tuple[str, float]:
    world, streams = root / "world", root / "streams"
    world.mkdir()
    streams.mkdir()
    here = furnish(world, item.data, command)
    before = snapshot(world)
    ended = run(command, here, _stdin(item, command), streams)
    _check_end(ended, command)
    _check_changes(before, snapshot(world), ended, command, here)
    if ended.code == 0:
        _check_result(ended, command, here)
    return _NAMES[ended.code], ended.seconds / _seconds(command)


def _stdin(item: Input, command: Command) -> bytes:
    return item.data if command.form == "stdin" else b""


def _seconds(command: Command) -> float:
    return seconds_for(command.size, check=command.is_check)


# ---- The end ----


def _check_end(ended: Ended, command: Command) -> None:
    if ended.code < 0:
        raise OverBudget(ended.stderr, ended.code)
    if "Traceback (most recent" in ended.stderr:
        last = ended.stderr.strip().splitlines()[-1]
        place = place_in(ended.stderr, innermost=-1)
        raise Broken(f"{last.partition(':')[0]} in {place}", last)
    found = _BUGS.search(ended.stderr)
    if found:
        raise Broken(f"stderr has '{found[0]}'", ended.stderr[found.start() :][-600:])
    if "not enough memory" in ended.stderr:
        raise Broken("not enough memory")
    allowed = (0, 1, 2) if command.is_check else (0, 2)
    if ended.code not in allowed:
        raise Broken(f"exit code {ended.code}", ended.stderr[-300:])
    _check_streams(ended, command)


def _check_streams(ended: Ended, command: Command) -> None:
    has_result = ended.code == 0 and command.output == "-"
    if bool(ended.stdout) != has_result:
        raise Broken(f"exit code {ended.code} with {len(ended.stdout)} bytes on stdout")
    if ended.code == 2 and "rror" not in ended.stderr:
        raise Broken("exit code 2 without a message", ended.stderr[-300:])
    if ["--format", "json"] in command.arguments and "Usage:" not in ended.stderr:
        _check_json(ended.stderr)


def _check_json(stderr: str) -> None:
    for line in stderr.splitlines():
        try:
            json.loads(line)
        except ValueError:
            raise Broken("--format json with other lines", line[:300]) from None


# ---- The files ----

Snapshot = dict[str, tuple[int, str]]


def _check_changes(
    before: Snapshot, after: Snapshot, ended: Ended, command: Command, here: Path
) -> None:
    changed = {p for p in {*before, *after} if before.get(p) != after.get(p)}
    allowed = _allowed(command, here) if ended.code == 0 else set()
    for path in sorted(changed):
        if not any(Path(path) == a or a in Path(path).parents for a in allowed):
            what = "made" if path not in before else "changed or removed"
            raise Broken(f"exit code {ended.code} and a file is {what}", path)
        if path in before and not S_ISDIR(before[path][0]):
            _check_replaced(path, command)
    if EVIL.exists():
        EVIL.unlink()
        raise Broken("a file is made outside")


def _check_replaced(path: str, command: Command) -> None:
    """A file is replaced with --force only, and only if it is that of a model."""
    if ["--force"] not in command.arguments:
        raise Broken("a file is replaced without --force", path)
    if path.endswith(LETTER):
        raise Broken("a file that is not of a model is replaced", path)


def _allowed(command: Command, here: Path) -> set[Path]:
    """What a command may change: the output, with its quantization info if it is a text."""
    if command.output == "-":
        return set()
    places = {here / command.output, (here / command.output).resolve()}
    return places | {place.with_suffix(".quant") for place in places}


# ---- The result ----


def _check_result(ended: Ended, command: Command, here: Path) -> None:
    try:
        if command.output == "-":
            if len(ended.stdout) < LONG:
                nnef_grad.loads(ended.stdout.decode())
            return
        place = here / command.output
        nnef_grad.load(place)
        if format_of(place) is not ModelFormat.TEXT:
            _check_data(place)
    except NnefGradError as error:
        raise Broken("the output is refused", error.message) from error


def _check_data(place: Path) -> None:
    data = nnef_grad.load_data(place)
    for label in data:
        if MARK in _bytes(data, label):
            raise Broken("the output has data from outside", label)


def _bytes(data: Mapping[str, Any], label: str) -> bytes:
    """The values of a label; quantized codes are stored, but are no values."""
    try:
        values: bytes = data[label].tobytes()
    except NnefGradError as error:
        if "quantized codes" in error.message:
            return b""
        raise
    return values
