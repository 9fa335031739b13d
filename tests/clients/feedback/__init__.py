"""Tests of what clients count and tell."""
