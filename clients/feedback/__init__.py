"""The counts and events of clients, without logging and without a metrics library.

Source: client rewrite, "Misc Notes and questions". `feedback()` of every client returns the counts
(`clients.feedback.snapshots`); clients call the application's `on_event` with single events
(`clients.feedback.events`). Counting costs a few additions for each request or batch, none for a record.
"""
