"""Owning things, from the side of the owner: claims that are kept on the connection that needs them.

`claim` is the machine for one resource, `claims` keeps several in order; `lease` and `exclusive` are what
applications use.
"""
