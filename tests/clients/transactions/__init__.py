"""Tests of a producer's transactions, against the fake cluster."""
