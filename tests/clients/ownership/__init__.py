"""Owning things, from the side of the owner."""
