"""The versions of the protocol between brokers: no request between brokers becomes newer unnoticed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.inter_broker import NEWEST, OLDEST, REQUESTS, request_version
from holdfast_log.protocol.schema import Versions

BY_NAME = {api.name: api for api in APIS.values()}


def test_the_newest_version_of_the_protocol_has_the_newest_requests() -> None:
    """Fails if a request between brokers gets a version: then REQUESTS needs a row with a new number."""
    assert {name: BY_NAME[name].max_version for name in REQUESTS[NEWEST]} == REQUESTS[NEWEST]


def test_every_request_that_only_brokers_send_has_a_version() -> None:
    internal = {api.name for api in APIS.values() if api.internal}
    assert internal <= REQUESTS[NEWEST].keys()


def test_versions_follow_each_other_and_never_go_back() -> None:
    assert list(REQUESTS) == list(range(OLDEST, NEWEST + 1))
    for number in range(OLDEST, NEWEST):
        for name, version in REQUESTS[number].items():
            assert REQUESTS[number + 1][name] >= version
            assert version >= BY_NAME[name].min_version, "a broker of today can still send it"


@pytest.mark.parametrize("protocol", REQUESTS)
def test_a_request_that_has_become_newer_is_sent_as_before(protocol: int) -> None:
    newer = replace(BY_NAME["AlterPartition"], versions=Versions.parse("2-4"))
    assert newer.max_version == 4
    assert request_version(newer, protocol) == REQUESTS[protocol]["AlterPartition"] == 3


def test_a_request_that_only_clients_send_has_its_newest_version() -> None:
    api = BY_NAME["DescribeCluster"]
    assert request_version(api, OLDEST) == api.max_version
