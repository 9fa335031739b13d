"""What a broker counts, shown over HTTP: `/metrics` for Prometheus, `/healthz` and `/readyz` for supervisors.

Here belong the form of a row (`row`), the page (`page`) and its server (`server`), and what concerns the
whole process (`turn_times`, `process_rows`). All other rows are declared in the folder that counts, in its
`metrics.py`; `broker.wiring.metrics` lists all of them.
"""
