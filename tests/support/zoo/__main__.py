"""The table of docs/onnx.md: python -m support.zoo [network ...], in the folder `tests/`."""

from __future__ import annotations

import logging
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

from support.zoo.compare import compare
from support.zoo.files import EXPORTERS, LEVELS, QUANTIZERS, export, optimize, quantize
from support.zoo.members import NAMES, Member, make


def rows(name: str, folder: Path) -> Iterator[tuple[str, ...]]:
    """What becomes of each file of a network."""
    member = make(name)
    for exporter in EXPORTERS:
        if exporter == "optimum" and not member.task:
            continue
        plain = folder / f"{exporter}.onnx"
        if failure := _failure(export, member, plain, exporter):
            yield name, exporter, "", "", failure
            continue
        for level in LEVELS:
            path = plain.with_name(f"{exporter}{level}.onnx")
            if level and (failure := _failure(optimize, member, plain, path, level)):
                yield name, exporter, level, "", failure
                continue
            for how in QUANTIZERS:
                yield name, exporter, level, how, _outcome(member, path, level, how)


def _failure(make_file: object, *args: object) -> str:
    """What another package says that does not write a file."""
    try:
        make_file(*args)  # type: ignore[operator]
    except Exception as error:
        return f"not written: {_brief(error)}"
    return ""


def _outcome(member: Member, path: Path, level: str, how: str) -> str:
    given, path = path, path.with_name(f"{path.stem}{how}.onnx")
    if how and (failure := _failure(quantize, member, given, path, how)):
        return failure
    try:
        found = compare(member, path, is_plain=not how and level != "O3")
    except Exception as error:
        return f"FAILED: {_brief(error)}"
    return (
        f"{found.gradients} gradients, {found.exact:.0e}; in ONNX Runtime {found.single:.0e}; "
        f"{found.parameters} of the module, {found.module:.0e}"
    )


def _brief(error: Exception) -> str:
    text = getattr(error, "stderr", b"") or str(error)
    said = text.decode() if isinstance(text, bytes) else text
    return f"{type(error).__name__}: {' '.join(said.split())[:400]}"


def main(names: list[str]) -> None:
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    for name in names or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            for row in rows(name, Path(folder)):
                print(" | ".join(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
