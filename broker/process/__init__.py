"""A broker as a process: starting and stopping in order, signals, the files it leaves in its log
directories."""
