"""The language that clients and brokers speak: messages, record batches, frames, errors.

Bytes in, values out, and back again. Nothing here opens a socket or a file, reads a clock or starts a
thread, and nothing here imports from any other top-level package of Holdfast.
"""
