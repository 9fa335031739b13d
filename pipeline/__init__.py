"""Spark on Holdfast: the data source for PySpark.

Stands on the clients; brokers know nothing of it.
"""
