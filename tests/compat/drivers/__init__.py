"""One program per stock client, each run as a process of its own: `python -m tests.compat.drivers.NAME`.

Each produces the workload, consumes and checks it, or goes through its library's admin calls, and prints one
line of JSON. They import the library they drive and `workload`, and nothing of Holdfast.
"""
