"""Command-line tools around ZooKeeper: the server that development and tests run."""
