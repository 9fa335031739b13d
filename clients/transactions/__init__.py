"""Transactions of a producer (KIP-98): its states, its requests to coordinators, and what applications call.

The machine here decides what is asked of coordinators, and `clients.sending` sends the records. Loaded only
by producers with a `transactional.id`.
"""
