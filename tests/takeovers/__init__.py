"""Hundreds of take-overs from a stopped owner: after it resumes, none of its writes may enter the log."""
