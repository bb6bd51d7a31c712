"""Elements at indices: reading and writing."""

from __future__ import annotations
