"""The command-line programs behind the scripts that talk to a running cluster.

Each file is one program with Kafka's flags. What a program does belongs to the clients; here stands only
how it is asked for and how the answer is shown.
"""
