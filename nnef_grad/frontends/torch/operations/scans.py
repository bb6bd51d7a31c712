"""What accumulates along an axis."""

from __future__ import annotations
