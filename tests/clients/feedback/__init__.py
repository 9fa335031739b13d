"""Tests of the clients' counters and events."""
