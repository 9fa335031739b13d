"""Tests of `clients.sending`."""
