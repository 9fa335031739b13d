"""A soak: for an hour clients come and go on three brokers, which are restarted in turn.

`scripts/soak.sh` runs it. At the end every acknowledged record must be readable, and the memory, file
descriptors and threads of the processes must not have grown.
"""
