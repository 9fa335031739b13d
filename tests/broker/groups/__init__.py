"""Tests of broker/groups and the handlers of groups, without other processes."""
