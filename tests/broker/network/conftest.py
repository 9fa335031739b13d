"""The path between a socket and the handlers in both forms: compiled, and in Python."""

from __future__ import annotations

import pytest

from holdfast_log.broker.network import transport
from holdfast_log.protocol.compiled import WIRE


@pytest.fixture(params=["compiled", "python"])
def data_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs the test with each form of `broker.network.transport`."""
    if request.param == "python":
        monkeypatch.setattr(transport, "_receive_whole", None)
        monkeypatch.setattr(transport, "_send_parts", None)
    elif WIRE is None:
        pytest.skip("protocol/_wire.c was not compiled, or HOLDFAST_PURE_PYTHON is set")
    return str(request.param)
