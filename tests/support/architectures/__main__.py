"""Runs architectures, each in a process of its own, and prints how they arrive.

PYTHONPATH=tests python -m support.architectures 'timm/res' --write
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

from support.architectures.catalog import ARRIVING, NAMES
from support.architectures.page import (
    PAGE,
    TABLE,
    page,
    read_results,
    table,
    write_results,
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="?", default="", help="a regular expression")
    parser.add_argument("--write", action="store_true", help="write docs/models.md")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(_figures(options.one)))
        return
    for name in NAMES:
        if re.search(options.names, name):
            found = _in_a_process(name)
            print(name, found, flush=True)
            if name in ARRIVING and "error" in found and options.write:
                write_results({**read_results(), name: found})
    if options.write:
        PAGE.write_text(page(read_results()), "utf-8")
        TABLE.write_text(table(read_results()), "utf-8")


def _in_a_process(name: str) -> dict[str, Any]:
    """The figures of an architecture, or the message of its process."""
    command = [sys.executable, "-m", "support.architectures", "--one", name]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    made = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False
    )
    if made.returncode == 0:
        return dict(json.loads(made.stdout.splitlines()[-1]))
    lines = [x for x in made.stderr.splitlines() if "rror" in x] or ["no message"]
    return {"message": lines[-1]}


def _figures(name: str) -> dict[str, Any]:
    from support.architectures.arrival import arrive_within
    from support.architectures.catalog import make

    warnings.simplefilter("ignore")
    found = arrive_within(partial(make, name))
    return {
        "forward": found.forward,
        "backward": found.backward,
        "gradients": len(found.errors),
        "exact": float(f"{found.exact:.1g}"),
        "error": round(found.errors[found.worst], 2),
        "where": found.worst,
        "seconds": {stage: round(s, 2) for stage, s in found.seconds.items()},
    }


if __name__ == "__main__":
    main()
