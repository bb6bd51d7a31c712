"""What the tests share: models, oracles, generators and runtimes."""
