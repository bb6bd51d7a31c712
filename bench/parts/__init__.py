"""The parts of the benchmark: each is a function of the settings, which yields its rows."""
