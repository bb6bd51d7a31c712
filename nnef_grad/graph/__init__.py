"""The flat graph, the intermediate representation. Nothing here depends on syntax
trees, or on the meaning of operations.
"""
