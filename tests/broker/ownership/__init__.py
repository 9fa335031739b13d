"""Ownership: the table as a machine, and what the seeds and the known cases ask of it."""
