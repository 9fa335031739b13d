"""Real processes under faults: brokers stopped, killed, paused, bounced and cut off, ZooKeeper taken away.

Two clients write steadily meanwhile, and every acknowledged record must be there exactly once, where the
acknowledgement said. `scripts/fault-matrix.sh` runs all cells; the default suite some, with shorter faults.
"""
