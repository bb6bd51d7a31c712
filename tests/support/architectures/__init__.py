"""Architectures as users have them: their modules, and how their gradients arrive.

images.py     networks of torchvision and timm
texts.py      networks of transformers
recurrent.py  networks of torch.nn
arrival.py    a module to its gradients in ONNX Runtime, next to torch's
"""
