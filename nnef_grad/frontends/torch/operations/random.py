"""What is drawn: dropout."""

from __future__ import annotations
