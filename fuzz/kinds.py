"""The kinds of input. An input is a function of its seed, so that a number identifies it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from random import Random
from typing import NamedTuple

from fuzz.changed import mutated
from fuzz.documents import MAX_BYTES, from_grammar, mutation, network
from fuzz.excessive import too_much
from fuzz.external import external
from fuzz.inputs import Input
from fuzz.loops import loop
from fuzz.options import library_options
from fuzz.sizes import much_of_one
from fuzz.steps import step
from fuzz.stored import archive, checked, folder, text

Made = str | bytes | Input


class Kind(NamedTuple):
    """A kind of input: how often it is drawn, and how one is made."""

    weight: float
    make: Callable[[Random], Made]


KINDS: dict[str, Kind] = {
    "grammar": Kind(0.12, from_grammar),
    "network": Kind(0.3, network),
    "mutation": Kind(0.25, mutation),
    "too much": Kind(0.03, too_much),
    "sizes": Kind(0.015, much_of_one),
    "text": Kind(0.1, text),
    "archive": Kind(0.08, archive),
    "folder": Kind(0.06, folder),
    "external": Kind(0.02, external),
    "check": Kind(0.03, checked),
    "step": Kind(0.05, step),
    "loop": Kind(0.05, loop),
    "mutated": Kind(0.05, mutated),
}
if find_spec("onnx") is not None:
    from fuzz.onnx_files import hostile

    KINDS["onnx"] = Kind(0.05, hostile)


def make_input(seed: str, kinds: Sequence[str] | None = None) -> Input:
    """The input of a seed, of one of the given kinds."""
    rng = Random(seed)
    names = list(kinds or KINDS)
    kind = rng.choices(names, [KINDS[name].weight for name in names])[0]
    made = KINDS[kind].make(rng)
    if isinstance(made, Input):
        return replace(made, kind=kind)
    data = made if isinstance(made, bytes) else made.encode("utf-8", "surrogatepass")
    return Input(data[:MAX_BYTES], library_options(rng), kind)
