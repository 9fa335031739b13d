"""A soak: clients that come and go on three brokers, which are restarted in turn, for an hour.

`scripts/soak.sh` runs it. At the end every acknowledged record must be readable, and memory, file descriptors
and threads of the processes must not have grown.
"""
