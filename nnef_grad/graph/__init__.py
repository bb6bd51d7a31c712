"""The flat graph: what is differentiated, transformed and written. Nothing here knows of
syntax trees, or of what an operation means.
"""
