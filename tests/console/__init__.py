"""Tests of the console: its pages with brokers in memory, and in a real browser with real brokers."""
