"""What sorts: the largest, the smallest, in order."""

from __future__ import annotations
