"""Real processes under faults: brokers are stopped, killed, paused, bounced or cut off, or ZooKeeper fails.

Two clients write steadily during each fault. Every acknowledged record must be stored exactly once, at its
acknowledged offset. `scripts/fault-matrix.sh` runs all cells; the default test suite runs some of them with
shorter faults.
"""
