"""The reading side of a consumer: positions, fetch requests, fetched batches, records for the application.

Consumer groups are in `clients.groups`, connections in `clients.connection`.
"""
