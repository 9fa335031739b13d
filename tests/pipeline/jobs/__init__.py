"""Tests of the jobs, and what only they use."""
