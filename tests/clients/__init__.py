"""Tests of clients, without other processes."""
