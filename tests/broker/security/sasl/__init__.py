"""Tests of `broker.security.sasl`."""
