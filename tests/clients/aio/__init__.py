"""Tests of `clients.aio`."""
