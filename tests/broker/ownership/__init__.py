"""Ownership: the table as a state machine, against the own API, PIP-68 and the numbered fencing cases."""
