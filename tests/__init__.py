"""The tests, mirroring the tree of the sources."""
