"""The front end: text to a checked syntax tree. Nothing here knows about graphs."""
