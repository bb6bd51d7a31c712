"""Random numbers of Python and NumPy, which torch.export takes for numbers that never change."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any
from unittest.mock import patch

import numpy as np
from torch import nn

from nnef_grad.base.errors import UnsupportedError

_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)
_MESSAGE = (
    "forward draws random numbers of Python or NumPy, which would never change in a graph:"
    " make them an input"
)


@contextmanager
def without_draws(module: nn.Module) -> Iterator[None]:
    """Refuses a block that draws from a generator, of those that the module can see."""
    make, thread = np.random.default_rng, get_ident()

    def seeded(seed: Any = None) -> Any:
        if seed is None and get_ident() == thread:
            raise UnsupportedError(_MESSAGE)
        return make(seed)

    before = _states(module)
    with patch.object(np.random, "default_rng", seeded):
        yield
    if _states(module) != before:
        raise UnsupportedError(_MESSAGE)


def _states(module: nn.Module) -> list[bytes]:
    """The states of the generators that all share, and of those in attributes of modules
    and in the files that define these.
    """
    parts = list(module.modules())
    files = {type(part).__module__ for part in parts} & {*sys.modules}
    spaces = [*map(vars, parts), *(vars(sys.modules[name]) for name in sorted(files))]
    own = [x for space in spaces for x in space.values() if type(x) in _GENERATORS]
    shared = (random.getstate(), np.random.get_state(legacy=False))
    return list(map(pickle.dumps, (*shared, *own)))
