"""Tensors that are made of nothing but their settings."""

from __future__ import annotations
