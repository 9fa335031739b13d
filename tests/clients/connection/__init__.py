"""Tests of `clients.connection`."""
