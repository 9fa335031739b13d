"""Checks a running cluster: drives it with clients, records every answer with its times, and judges them.

What belongs here: the recorded calls (`calls.py`), the judges, which are functions of recorded calls and do
no I/O (`order.py`, `holders.py`, `logs.py`, `registers.py`, `verdict.py`), the clients that make the calls
(`clients/`), the parts of the load (`parts.py`, `load.py`), the cluster of its own with its faults
(`cluster.py`, `faults.py`), and the command line (`check_history.py`). Tests of single classes do not belong
here, nor does anything that a broker needs. docs/histories.md has the rules.
"""
