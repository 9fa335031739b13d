"""The public face of Holdfast.

    from holdfast import Admin, Consumer, Message, NewTopic, Producer

Everything here comes from the top-level packages `clients` and `protocol` of this installation. Their names
are plain, so that another package of the same name may stand before them on the import path; importing
`holdfast` then says so, instead of failing somewhere inside.
"""

from __future__ import annotations

import importlib
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent


def _check_not_shadowed() -> None:
    """Raise ImportError where `clients` or `protocol` is somebody else's."""
    for name in ("protocol", "clients"):
        module = importlib.import_module(name)
        places = [Path(place).resolve() for place in getattr(module, "__path__", ())]
        if _ROOT / name not in places:
            found = module.__file__ or ", ".join(str(place) for place in places)
            raise ImportError(
                f"holdfast needs its own package {name!r}, but {found} comes before it on the import path: "
                "rename that one, or leave its directory out of the path"
            )


_check_not_shadowed()

from clients.admin import Admin, NewTopic  # noqa: E402
from clients.connection import ANY_NODE, CONTROLLER, Connection  # noqa: E402
from clients.consumer import Consumer  # noqa: E402
from clients.errors import ClientError  # noqa: E402
from clients.link import Call, Reply  # noqa: E402
from clients.message import ConsumerRecord, Message, RecordMetadata, TopicPartition  # noqa: E402
from clients.producer import Producer  # noqa: E402
from clients.responses import SendResponse  # noqa: E402
from protocol.errors import BrokerError, ErrorCode  # noqa: E402

__all__ = [
    "Admin", "ANY_NODE", "BrokerError", "Call", "ClientError", "Connection", "Consumer", "ConsumerRecord",
    "CONTROLLER", "ErrorCode", "Message", "NewTopic", "Producer", "RecordMetadata", "Reply", "SendResponse",
    "TopicPartition",
]  # fmt: skip
