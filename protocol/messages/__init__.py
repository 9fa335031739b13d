"""One file per API: its request and its response, one declaration for all versions.

What a message means belongs to the handlers and the clients; here stands only what it looks like.
"""
