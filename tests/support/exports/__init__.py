"""Modules of PyTorch that torch-to-nnef exports, and what torch says their gradients are.

layers.py    single operations, and a few layers after one another
networks.py  blocks of known architectures, written out
language.py  tiny models of transformers
exporting.py the export of a module, with the gradients of torch in double precision
"""
