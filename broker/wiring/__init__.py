"""Builds a broker: constructs every part and connects it to the others. Contains no rules and no protocol."""
