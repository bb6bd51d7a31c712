"""The commands. Nothing is imported yet: Ctrl-C ends them quietly from the start."""

from __future__ import annotations

import gc
import os
import signal
import sys
from functools import partial
from importlib import import_module
from types import FrameType

# How many objects are made before the garbage collector looks for cycles again: modules
# and options have few of them.
THRESHOLD = 100_000


def _run(module: str) -> None:
    gc.set_threshold(THRESHOLD)
    _open_streams()
    signal.signal(signal.SIGINT, _exit)
    try:
        import_module(module).main()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # The process ends: what is left needs no last look for cycles. Libraries of torch
        # look for what was never released, and would print pages of it.
        if "torch" not in sys.modules:
            gc.freeze()


def _open_streams() -> None:
    """Opens what is closed of stdin, stdout and stderr, so that no file that is opened
    later takes its place.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _exit(number: int, _: FrameType | None) -> None:
    """Ends the process at once: there is nothing yet to clean up, and an exception in
    the middle of an import may get lost.
    """
    os.write(2, b"interrupted\n")
    os._exit(128 + number)


# `nnef-grad`, and `python -m nnef_grad`; and the other commands.
main = partial(_run, "nnef_grad.commandline.cli")
format_files = partial(_run, "nnef_grad.commandline.fmt_cli")
make_step = partial(_run, "nnef_grad.commandline.step_cli")
merge = partial(_run, "nnef_grad.commandline.merge_cli")

if __name__ == "__main__":
    main()
