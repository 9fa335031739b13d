"""Ownership: one writer and one reader for a resource, and the guards that keep out all other clients.

The path of a claim, each file in the order in which the claim visits it:

1. `broker/handlers/own.py` checks the request and makes the claimed resources a `Claim`; `requests` has the
checks that all ownership handlers share, and `decided` knows whether this broker decides about a resource. 2.
`service.OwnershipService.submit` gives the operation a ticket, and passes it to the table. 3. `table` lets
operations on the same resource take turns. When it is the claim's turn, `claims.Claim.begin` has `rules`
judge it, and returns the records (`resources`) that have to be durable first. 4. The service writes them:
`coordinator/ownership/store.py`, one multi that replaces what was read. 5. `claims.Claim.carry_out` puts the
grants into force (`state`). The service then refreshes the `guards` that judge appends and fetches, and
severs the connections of the owners that lost. 6. The request waits in `answers` until the high watermark has
reached the fence, and is answered.

The other operations (`operations`, `readers`) take the same path. Beside it: `sessions` ends what is silent
for too long, `renewals` keeps Renew requests waiting, and `decided` loads records when this broker begins to
lead.
"""
