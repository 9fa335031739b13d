"""Tests of the clients without other processes."""
