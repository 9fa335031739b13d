"""Tests of what clients and brokers make of the settings of TLS."""
