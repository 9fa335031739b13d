"""The counts and events of clients, which neither log nor depend on a library of metrics.

As in the client rewrite, "Misc Notes and questions". `feedback()` of every client gives the counts
(`clients.feedback.snapshots`), and call `on_event` with single events
(`clients.feedback.events`). Counting costs a few additions for each request or batch, none for a record.
"""
