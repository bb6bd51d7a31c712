"""What tract alone needs of the lowerings. Without this folder, and the rows that name tract
in the tables of targets/, other targets are what they are.

own.py          operations in place of those that it takes longer for
integers.py     numbers in place of integers
workarounds.py  operations that it makes wrong next to each other
loading.py      large variables, and results that are divided, as it loads a graph
precision.py    variables that are not in single precision
dialect.py      its texts
rewriting.py    documents that were read, and are written again
"""
