"""Sums, means, extrema, norms, along axes."""

from __future__ import annotations
