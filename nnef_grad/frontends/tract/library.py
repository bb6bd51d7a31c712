"""The operations that a document of tract's dialect may use."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from nnef_grad.frontends.library import Joined
from nnef_grad.language.library import (
    Extended,
    FragmentFile,
    Library,
    extras,
    standard,
)
from nnef_grad.language.syntax import Fragment

# What a document names in its extension lines.
REGISTRIES = ("tract_core", "tract_onnx", "tract_transformers")


@lru_cache(maxsize=1)
def tract_library() -> FragmentFile:
    """The operations of tract's registries, from tract.nnef."""
    return FragmentFile(Path(__file__).parent / "tract.nnef", REGISTRIES)


@lru_cache(maxsize=1)
def idioms() -> FragmentFile:
    """The fragments that stand for operations of the standard, from idioms.nnef."""
    return FragmentFile(Path(__file__).parent / "idioms.nnef")


def idiom_of(fragment: Fragment) -> str | None:
    """The operation of the standard that a fragment of a document is, if it is one."""
    name = fragment.name
    if name not in idioms() or idioms()[name] != fragment:
        return None
    return IDIOMS.get(name, name)


# Those that have another name in the standard.
IDIOMS = {"tract_gelu": "gelu"}


@lru_cache(maxsize=1)
def builtin() -> Library:
    """The fragments that the bodies of tract.nnef may use."""
    return Joined(tract_library(), extras(), standard())


def own_library(fragments: Iterable[Fragment], known: Library) -> Library:
    """The fragments that a document may use: its own go first, also where the standard has an
    operation of their name.
    """
    return Extended(fragments, Joined(tract_library(), known))
