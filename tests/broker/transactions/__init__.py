"""Tests of broker/transactions and the handlers of transactions, without other processes."""
