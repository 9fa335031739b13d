"""What applications use in their tests: the fake cluster's public methods, pytest plugin, container."""
