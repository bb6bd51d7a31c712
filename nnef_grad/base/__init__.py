"""Needed by all rooms: places in texts, errors, frozen values."""
