"""A model as a PyTorch module, which a runtime computes: `nnef_grad.torch` is the facade.

module.py    the module: parameters, arguments
programs.py  compiled graphs, and their derivatives as autograd sees them
sources.py   the text of a model, to be read again for other shapes
"""
