"""One program per stock client, each run in its own process: `python -m tests.compat.drivers.NAME`.

Each produces, consumes and checks the workload, or makes its library's admin calls, and prints a line of JSON
per action.
A stock client's driver imports only its library and `workload` or `membership`.
"""
