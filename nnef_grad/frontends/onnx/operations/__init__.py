"""The functions that read operations of ONNX, by family, which enter themselves."""

from importlib import import_module
from pkgutil import iter_modules

for family in iter_modules(__path__):
    import_module(f"{__name__}.{family.name}")
