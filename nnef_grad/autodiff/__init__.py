"""A forward graph to its backward graph."""
