"""The time and the memory that an input may take, by its size."""

from __future__ import annotations

# Reading, differentiating and printing take 10 to 35 microseconds of processor time and
# 100 to 400 bytes of memory for each byte of an ordinary document, whatever its length.
# Each step may take four times as much as all of them, so that a busy machine is not
# blamed on the input; what grows faster than the document exceeds it all the same.
SECONDS_PER_BYTE = 120e-6
MEMORY_PER_BYTE = 1500
# A short document may stand for a large graph, within reason.
SECONDS = 2.0
MEMORY = 256 * 2**20
# Comparing with differences runs the graph for each of its tensors. The graphs are small.
SECONDS_OF_A_CHECK = 20.0
MEMORY_OF_A_CHECK = 2**30
# The operations and operands of a graph that a short document stands for count as so much
# text.
BYTES_OF_AN_OPERATION = 100


def seconds_for(size: int, *, check: bool = False) -> float:
    """The seconds of processor time that a step on so many bytes may take."""
    return SECONDS + SECONDS_PER_BYTE * size + check * SECONDS_OF_A_CHECK


def memory_for(size: int, *, check: bool = False) -> int:
    """The bytes of memory that an input of so many bytes may take."""
    return MEMORY + MEMORY_PER_BYTE * size + check * MEMORY_OF_A_CHECK
