"""The owner's side of ownership: claims, sent on the connections that need them, and leases.

`claim` is the machine for one resource, `claim_states` its transition table, `claims` has those of one owner.
Applications use `Lease`, and the exclusive producer and consumer beside this folder.
"""
