"""Unmodified clients of other projects against our broker, and our clients against another broker."""
