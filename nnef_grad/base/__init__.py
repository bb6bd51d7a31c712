"""What all rooms need: places in texts, errors, frozen values."""
