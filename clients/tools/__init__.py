"""The command-line programs behind the scripts that talk to a running cluster.

Each program is one file and takes Kafka's flags. This folder parses flags and prints results, and nothing
else: the operations themselves belong to the clients.
"""
