"""Real servers on loopback, for the tests and the local runs of the applications."""
