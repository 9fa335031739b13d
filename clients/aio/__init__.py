"""The clients for asyncio: each wraps an ordinary client, whose waits run in threads of their own.

What belongs here: which loop a client belongs to, the threads that wait for it, and the classes that
applications import from `holdfast_log.aio`. No protocol, no sockets and no decisions: those are the ordinary
clients'. A method that waits is a coroutine here; one that never waits is a plain method.
"""
