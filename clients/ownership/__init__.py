"""Owning things, from the side of the owner: claims that are kept on the connection that needs them.

`tenure` is the machine for one resource, `tenures` keeps several in order; `lease` and `exclusive` are what
applications use.
"""
