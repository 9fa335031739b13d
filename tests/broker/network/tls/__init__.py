"""Tests of TLS on the broker's connections."""
