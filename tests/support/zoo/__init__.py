"""Networks as people hold them in ONNX files: written by both exporters of PyTorch, fused by the
optimizer for transformers, and quantized; beside torch.
"""
