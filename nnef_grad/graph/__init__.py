"""The flat graph. Nothing here depends on documents, or on the meaning of operations."""
