"""The clients of a check. Each makes one step at a time, and records every call with its times.

What belongs here: one file for each kind of client, and `crew.py`, which runs them. Clients do not judge
what they are answered; that is done later, from the recorded calls.
"""
