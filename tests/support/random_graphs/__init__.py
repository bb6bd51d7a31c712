"""Random graphs: one table of operations, for gradients and for documents.

Gradients are compared with torch's, which wants graphs that are away from kinks and poles;
the front end is given whatever is valid, by way of support/documents/generate.py.

A graph is a function of a seed and a number. `python -m support.random_graphs`,
with the tests on the path, makes graphs and compares; what fails is made small first.

    graphs.py       statements, and the values that a graph is run on
    operations.py   the table: how operands and attributes of each operation are drawn
    draw.py         a graph in the making, with the values of its tensors: such that
                    gradients can be compared, or any
    domains.py      where operations have a derivative that can be compared
    windows.py      sliding windows that fit
    oracle.py       one operation, evaluated
    generate.py     a seed and a number to a graph
    compare.py      what the compiler makes of a graph
    minimise.py     a graph that fails to a small one
    run.py          many graphs, and what was seen of them
    runtimes.py     their backward graphs in real runtimes
    open_graphs.py  graphs with symbols and loops, and the same in torch
    open_compare.py their gradients against torch's, and in real runtimes
"""
