"""Changes of shape, parts, and what puts parts together."""

from __future__ import annotations
