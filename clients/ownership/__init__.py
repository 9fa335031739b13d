"""The client's side of ownership: claims, sent on the connections that need them, and leases.

`claim` is the machine for one resource, `claim_states` its transition table, `claims` has the claims of one
owner. Applications use `Lease`, and the exclusive producer and consumer in `clients/`. Brokers decide who
owns what, in `broker.ownership`.
"""
