"""One file per API: reads the request, calls the domain objects that decide, and builds the response.

Handlers contain no rules of their own: logic belongs to the object that the handler calls.
"""
