"""Architectures as users have them: their modules, and how their gradients arrive.

images.py    networks of torchvision and timm
texts.py     networks of transformers
layers.py    networks of torch.nn
catalog.py   all of them by name, and those that are refused
arrival.py   a module to its gradients in ONNX Runtime, next to torch's
page.py      docs/models.md
results.json the last figures of each
__main__.py  runs them and writes the page
"""
