"""Tests of consumers in groups, against brokers in memory."""
