"""Tests of ownership on the client's side."""
