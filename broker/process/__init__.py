"""A broker as a process: start and stop, signals, and the process's files in the log directories."""
