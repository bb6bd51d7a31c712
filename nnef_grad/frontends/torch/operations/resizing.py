"""Resizing, and samples at the points of a grid."""

from __future__ import annotations
