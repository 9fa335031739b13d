"""The name of the topic that stores transactional ids."""

from __future__ import annotations

TRANSACTIONS_TOPIC = "__transaction_state"
