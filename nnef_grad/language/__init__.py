"""Text to a checked syntax tree. Nothing here knows of graphs."""
