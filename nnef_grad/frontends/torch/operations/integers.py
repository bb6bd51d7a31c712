"""Integers: arithmetic, bits, and the conversion of types."""

from __future__ import annotations
