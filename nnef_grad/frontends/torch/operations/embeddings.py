"""Rows of tables."""

from __future__ import annotations
