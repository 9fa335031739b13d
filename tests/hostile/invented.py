"""Topics that the requests of an attack have created: a client may ask for metadata of any name, and the
broker creates the topic (`auto.create.topics.enable`).

They are no less the cluster's than other topics, and cost memory for as long as they exist. What is asked of
a broker after an attack is that nothing else is left of it. So they are deleted before its memory is judged,
and the next requests find the cluster that the report describes.
"""

from __future__ import annotations

from itertools import islice

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.delete_topics import DeleteTopicsRequest
from holdfast_log.protocol.messages.metadata import MetadataRequest
from tests.integration.raw_socket import RawSocket

_AT_ONCE = 200
_GONE = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


def topics_of(port: int) -> set[str]:
    """The topics that exist, without those of the broker itself."""
    with RawSocket(port) as socket:
        topics = socket.call(MetadataRequest(topics=None), 12).topics
    return {topic.name for topic in topics if topic.name is not None and not topic.is_internal}


def delete_invented(port: int, known: set[str]) -> int:
    """Delete the topics that are not `known`. Returns how many there were, as soon as none is left."""
    invented = topics_of(port) - known
    left = set(invented)
    with RawSocket(port) as socket:
        while left:
            request = DeleteTopicsRequest(topic_names=list(islice(left, _AT_ONCE)), timeout_ms=60_000)
            results = socket.call(request, 5).responses
            left -= {each.name for each in results if each.name is not None and each.error_code in _GONE}
    return len(invented)
