"""Transformations of a graph: each takes a graph and returns a graph, and says what it
requires and ensures.
"""
