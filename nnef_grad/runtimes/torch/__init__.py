"""A model as a PyTorch module, which a runtime computes: `nnef_grad.torch` is the facade.

module.py    the module: parameters, arguments, and the text of its model
programs.py  compiled graphs, and their derivatives as autograd sees them
"""
