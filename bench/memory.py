"""Measures what docs/memory.md, docs/onnx.md and docs/how-to/adapters.md say of memory, a
process for each row:

    python -m bench.memory             # all tables: an hour
    python -m bench.memory limits      # or one of them
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.processes import FailedError, ask

Rows = Iterator[tuple[str, ...]]
NETS = ("alexnet", "vgg19", "resnet50", "mobilenet_v2", "unet", "vit_tiny", "gpt2")


def row(kind: str, **request: Any) -> Any:
    return ask("memory_rows", {"kind": kind, **request})


def alone(kind: str, **request: Any) -> Any:
    """A row that is measured without PyTorch in the process."""
    return ask("memory_alone", {"kind": kind, **request})


def limits() -> Rows:
    """What --recompute keeps of the memory besides results, and the work that it adds."""
    for net in NETS:
        for share in (0.5, 0.25):
            found = row("limit", net=net, share=share)
            least = "" if found["kept"] else ", the least found"
            alive = f"{found['alive']:.2f} of {found['before']:.0f} MiB{least}"
            yield net, str(share), alive, f"{found['work']:.2f} x"


def saved() -> Rows:
    """MiB between the halves of a split, ours and torch's by a minimum cut."""
    for net in NETS:
        found = row("saved", net=net)
        yield net, f"{found['ours']:.1f} MiB", f"{found['torch']:.1f} MiB"


def resident() -> Rows:
    """The growth of the process in MiB while it computes gradients."""
    for net in ("residual", "vgg19"):
        for runtime in ("tract", "onnxruntime", "numpy", "khronos"):
            grown = (
                row("resident", net=net, runtime=runtime, share=share)
                for share in (None, 0.5, 0.3)
            )
            yield net, runtime, *(f"{found['grown']:.0f}" for found in grown)


def stages() -> Rows:
    """Seconds of each stage from an ONNX file to gradients, and the peak of the process."""
    for net in ("gpt2", "gpt2 of 556 million"):
        with TemporaryDirectory() as folder:
            path = Path(folder, "model.onnx")
            row("export", net=net, path=str(path))
            size = size_of(Path(folder)) / 2**20
            yield net, "data", "", f"{size:,.0f} MiB"
            for stage, (seconds, peak) in alone("stages", path=str(path)).items():
                times = f"{peak / size:.2f} x"
                yield net, stage, f"{seconds:.1f} s", f"{peak:,.0f} MiB", times


def adapters() -> Rows:
    """GPT-2 small with adapters of rank 8, 50 steps in tract and in torch: the folder, the
    peaks of memory, the processor time of a step, and the losses.
    """
    for in_blocks in (True, False):
        with TemporaryDirectory() as folder:
            row("step", path=folder, in_blocks=in_blocks)
            megabytes = size_of(Path(folder, "step")) / 1e6
            ours = alone("in_tract", path=str(Path(folder, "step")))
            theirs = row("in_torch", path=folder)
        yield "Q4_0" if in_blocks else "single precision", f"{megabytes:.0f} MB"
        yield "after loading", f"{ours['loaded']:,.0f} MiB"
        for name, found in (("tract", ours), ("torch", theirs)):
            losses = f"{found['losses'][0]:.6f} to {found['losses'][-1]:.6f}"
            yield name, f"{found['peak']:,.0f} MiB", f"{found['seconds']:.2f} s", losses
        pairs = zip(ours["losses"], theirs["losses"], strict=True)
        yield "losses differ by", f"{max(abs(a - b) for a, b in pairs):.1e}"


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


TABLES: dict[str, Callable[[], Rows]] = {
    table.__name__: table for table in (limits, saved, resident, stages, adapters)
}


def main(names: list[str]) -> None:
    for name in names or TABLES:
        print(f"\n{name}: {TABLES[name].__doc__}", flush=True)
        rows = TABLES[name]()
        try:
            for cells in rows:
                print("| " + " | ".join(cells) + " |", flush=True)
        except FailedError as error:
            print(f"failed: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
