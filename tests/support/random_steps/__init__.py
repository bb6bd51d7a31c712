"""Random training steps against torch."""
