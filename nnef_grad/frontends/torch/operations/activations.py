"""Activations of torch.nn."""

from __future__ import annotations
