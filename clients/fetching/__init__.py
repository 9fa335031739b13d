"""The consumer's inside without groups: positions, fetch requests, fetched batches, and handing out their
records.
"""
