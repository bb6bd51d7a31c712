"""Expansions of operations of several formats: functions of a view of one (view.py) and of
its operands, which emit operations of the standard.

branches.py    choices between the results of branches
loops.py       loops whose body is what a function emits, and recurrent layers
matrices.py    determinants, inverses, exponentials of small matrices
products.py    products of matrices, linear layers, einsum, attention
reductions.py  products along axes, running sums
resizing.py    resizing, and samples at the points of a grid
selection.py   elements at indices, the largest ones, triangles
windows.py     convolutions and pools, from windows along each axis; blocks of images
"""
