"""How a consumer reads: positions, fetch requests, fetched batches, and the records for the application."""
