"""Random numbers of Python and NumPy, which torch.export takes for numbers that never change."""

from __future__ import annotations

import gc
import pickle
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from threading import get_ident
from types import FunctionType
from typing import Any
from unittest.mock import patch

import numpy as np
import sympy.core.random  # type: ignore[import-untyped]

from nnef_grad.base.errors import UnsupportedError

_GENERATORS = {random.Random, np.random.Generator, np.random.RandomState}
_MESSAGE = (
    "forward draws random numbers of Python or NumPy, which would never change in a graph:"
    " make them an input"
)


def generators() -> list[Any]:
    """All generators that there are, wherever the module has them from: the shared ones of
    Python and NumPy, too. Those with which sympy compares extents have no share in a graph.
    """
    others = {id(x) for x in vars(sympy.core.random).values()}
    found = (x for x in gc.get_objects() if type(x) in _GENERATORS)
    return [x for x in found if id(x) not in others]


@contextmanager
def without_draws(known: Sequence[Any]) -> Iterator[None]:
    """Refuses a block that draws from a generator of these, or from one without a seed."""
    thread = get_ident()

    def seeded(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            # `Random.seed` has a seed `a` after the generator.
            given = kwargs.get("a", args[1] if len(args) > 1 else None)
            if get_ident() == thread and given is None:
                raise UnsupportedError(_MESSAGE)
            return original(*args, **kwargs)

        return replacement

    before = _states(known)
    private = random.Random(0)
    with ExitStack() as stack:
        for defaults in _defaults_of_checks():
            drawing = {n: private.getrandbits for n, x in defaults.items() if _draws(x)}
            stack.enter_context(patch.dict(defaults, drawing))
        with _without_seeds(seeded):
            yield
    if _states(known) != before:
        raise UnsupportedError(_MESSAGE)


def _defaults_of_checks() -> Iterator[dict[str, Any]]:
    """The defaults of functions in which beartype checks arguments of others: of items that it
    draws, which decide nothing but whether there is an error.
    """
    # There are many objects to look at.
    objects = gc.get_objects() if "beartype" in sys.modules else ()
    for function in (x for x in objects if type(x) is FunctionType):
        if function.__code__.co_filename.startswith("<@beartype("):
            yield function.__kwdefaults__ or {}


def _draws(value: Any) -> bool:
    return isinstance(getattr(value, "__self__", None), random.Random)


@contextmanager
def _without_seeds(seeded: Callable[..., Any]) -> Iterator[None]:
    # What the system draws seeds the generators of NumPy.
    with (
        patch.object(random, "_urandom", seeded(vars(random)["_urandom"])),
        patch.object(random.Random, "seed", seeded(random.Random.seed)),
    ):
        yield


def _states(known: Sequence[Any]) -> list[bytes]:
    return list(map(pickle.dumps, known))
