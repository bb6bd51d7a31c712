"""The command lines: their options, and what these do."""
