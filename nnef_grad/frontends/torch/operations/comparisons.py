"""Comparisons, logic, and choices by a mask."""

from __future__ import annotations
