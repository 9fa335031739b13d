"""One file per API: its request and its response, one declaration for all versions.

Only the form of messages is here; handlers and clients implement their meaning.
"""
