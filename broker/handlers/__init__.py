"""One file per API: what the broker answers, in terms of the domain objects that decide it.

A handler translates between a message and the objects that know; one that grows logic points at an object
that is missing.
"""
