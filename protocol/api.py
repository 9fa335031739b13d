"""What an API is: a request and its response, a key, versions.

    @request(key=3, versions="0-12", flexible="9+")
    class MetadataRequest(Request[MetadataResponse]):
        ...

declares an API; the request class and the response class have it as `.api`. `protocol.catalog` has all APIs
by key, `protocol.headers` encodes and decodes requests and responses with their headers.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, dataclass_transform

from holdfast_log.protocol.schema import (
    ProtocolMessage,
    Versions,
    set_versions,
    struct,
)

API_VERSIONS_KEY = 18


class Response(ProtocolMessage):
    """The answer to a request."""

    __slots__ = ()

    api: ClassVar[Api]


R = TypeVar("R", bound=Response)
Q = TypeVar("Q", bound="Request[Any]")


class Request(ProtocolMessage, Generic[R]):
    """A request to a broker, from a client or a broker. `R` is the class of the response."""

    __slots__ = ()

    api: ClassVar[Api]


@dataclass(frozen=True, slots=True)
class Api:
    """One row of the protocol.

    `versions` can be encoded and decoded. `advertised` versions are in the ApiVersions response of a broker
    with a handler for the API; they may be more (old versions that are answered by an error) or fewer. `sent`
    are those that Holdfast's clients send: later ones may mean something else. Those of `transactions_2`
    belong to transaction.version 2 (KIP-890), and are advertised and sent only where that is finalised. An
    `internal` API is for brokers only, and never advertised. For an API of Holdfast's own, `feature` is
    what a broker announces that supports it.
    """

    key: int
    name: str
    request: type[Request[Any]]
    response: type[Response]
    versions: Versions
    flexible: Versions
    advertised: Versions
    sent: Versions
    transactions_2: Versions | None
    internal: bool
    feature: str | None

    def last_without_transactions_2(self, last: int) -> int:
        """The last version up to `last` that does not belong to transaction.version 2."""
        return last if self.transactions_2 is None else min(last, self.transactions_2.first - 1)

    @property
    def min_version(self) -> int:
        return self.versions.first

    @property
    def max_version(self) -> int:
        return self.versions.last

    def has_flexible_request_header(self, version: int) -> bool:
        """Whether the request header has version 2, which ends with tagged fields."""
        return version in self.flexible

    def has_flexible_response_header(self, version: int) -> bool:
        """Whether the response header has version 1, which ends with tagged fields.

        ApiVersions always has version 0, since its reader does not know the broker's versions yet (KIP-511).
        """
        return version in self.flexible and self.key != API_VERSIONS_KEY


@dataclass_transform(kw_only_default=True)
def request(
    *,
    key: int,
    versions: str,
    flexible: str,
    advertised: str | None = None,
    sent: str | None = None,
    transactions_2: str | None = None,
    internal: bool = False,
    feature: str | None = None,
) -> Callable[[type[Q]], type[Q]]:
    """Declares a request, and the API that it forms with its response."""

    def declare(cls: type[Q]) -> type[Q]:
        declared = struct(cls)
        response = _response_of(declared)
        for side in (declared, response):
            set_versions(side, versions, flexible)
        api = Api(
            key=key,
            name=cls.__name__.removesuffix("Request"),
            request=declared,
            response=response,
            versions=declared.versions,
            flexible=declared.flexible_versions,
            advertised=Versions.parse(advertised or versions),
            sent=Versions.parse(sent or versions),
            transactions_2=None if transactions_2 is None else Versions.parse(transactions_2),
            internal=internal,
            feature=feature,
        )
        declared.api = response.api = api
        return declared

    return declare


def _response_of(cls: type[Request[Any]]) -> type[Response]:
    """The response class `R` of a class declared as Request[R]."""
    (base,) = cls.__orig_bases__  # type: ignore[attr-defined]
    (response,) = typing.get_args(base)
    return typing.cast("type[Response]", response)
