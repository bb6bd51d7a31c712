"""Modules out of packages that other people wrote, next to autograd: a census.

catalog/    for each package a text: what to import, and a module with its inputs a line
__main__.py runs it: `python -m support.strangers timm monai`, in the folder `tests/`
"""
