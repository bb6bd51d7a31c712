"""Convolutions and pools."""

from __future__ import annotations
