"""What tract alone needs of the lowerings. Without this folder, and the rows that name tract
in the tables of targets/, other targets are what they are.

own.py          operations in place of those that it takes longer for
integers.py     numbers in place of integers
workarounds.py  operations that it makes wrong next to each other
weights.py      large variables that are read several times
divided.py      results that are divided into parts
precision.py    variables that are not in single precision
dialect.py      what its text means otherwise
"""
