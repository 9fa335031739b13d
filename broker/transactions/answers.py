"""The errors of transactions: of ids that no producer can have, and in the words that older clients know."""

from __future__ import annotations

from holdfast_log.protocol.errors import BrokerError, ErrorCode


def known_error(error: ErrorCode, *, knows_fenced: bool = True, knows_abortable: bool = True) -> ErrorCode:
    """The error that a version of a request has for `error`. Before PRODUCER_FENCED (KIP-588) there was
    INVALID_PRODUCER_EPOCH, before TRANSACTION_ABORTABLE (KIP-890) INVALID_TXN_STATE."""
    if error is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error


def id_refusal(transactional_id: str) -> BrokerError | None:
    """INVALID_REQUEST for an empty transactional id, which no producer can have; None for any other."""
    if transactional_id:
        return None
    return BrokerError(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")


def check_transactional_id(transactional_id: str) -> None:
    """Raises BrokerError as `id_refusal` returns it."""
    refused = id_refusal(transactional_id)
    if refused is not None:
        raise refused
