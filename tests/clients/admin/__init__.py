"""Tests of `clients.admin`."""
