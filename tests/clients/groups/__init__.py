"""Consumers in groups, against brokers in memory."""
