"""The protocol of clients and brokers: messages, record batches, frames, errors.

The package converts bytes to values and back. It opens no socket or file, reads no clock, starts no thread,
and imports no other top-level package of Holdfast.
"""
