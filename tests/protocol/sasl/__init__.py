"""Tests of `protocol.sasl`."""
