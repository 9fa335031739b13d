"""Ownership: one writer and one reader for a resource, and the guards that keep out all other clients.

The path of a claim, each file in the order in which the claim visits it:

1. `broker/handlers/own.py` checks the request with `requests`, which also asks `decided` whether this broker
   decides about each resource, and makes the request a `claims.Claim`.
2. `service.OwnershipService.submit` gives the claim a ticket, and passes it to the table.
3. `table` has the operations on a resource take turns. When it is the claim's turn, `claims.Claim.begin` has
   `rules` judge it, and returns the records (`resources`) that must be durable first.
4. `record_writing` has `coordinator/ownership/store.py` write the records: one multi that replaces exactly
   what was read.
5. `claims.Claim.carry_out` puts the grants into force in `state`.
6. `guards` are refreshed, which judge appends and fetches; the connections of the losers are severed.
7. `answers` keeps the request until `fence_commits` reports that the fence is settled,
   and answers it.

The other operations (`operations`, `readers`) take the same path. `sessions` ends the ownership of clients
that are silent for too long; `alarms` wakes the table for that. `renewals` keeps Renew requests waiting, and
`decided` loads the records of a partition before this broker leads it.
"""
