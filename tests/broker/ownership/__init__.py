"""Ownership: the table as a machine, and what the own API, PIP-68 and the known cases ask of it."""
