"""Random nodes of ONNX, one to three in a graph: what is read of them against ONNX Runtime.

draw.py      numbers, shapes, attributes, and the awkward ones among them
kinds.py     the table: what each kind of node is given
generate.py  a seed and a number to a file, with the values that it is fed
compare.py   what the compiler makes of a file
"""
