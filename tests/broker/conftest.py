"""The broker's data path with and without its compiled functions."""

from __future__ import annotations

import pytest

from holdfast_log.broker.handlers import produce
from holdfast_log.broker.log import log, preparation
from holdfast_log.broker.replication import several_fetch, usual_append, usual_fetch
from holdfast_log.protocol import batches, compiled, plain_produce


@pytest.fixture(params=["compiled", "python"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test with the functions that HOLDFAST_PURE_PYTHON selects, too."""
    if request.param == "compiled":
        if log._compiled is None or usual_append._compiled is None or not compiled.DECODERS:
            pytest.skip("the extensions were not compiled")
        return
    monkeypatch.setattr(usual_append, "_compiled", None)
    monkeypatch.setattr(usual_fetch, "_compiled", None)
    monkeypatch.setattr(several_fetch, "_compiled", None)
    monkeypatch.setattr(log, "_compiled", None)
    monkeypatch.setattr(log, "_again", None)
    monkeypatch.setattr(log, "assign", batches.assign)
    monkeypatch.setattr(preparation, "plain_header", plain_produce.plain_header_in_python)
    monkeypatch.setattr(produce, "acknowledgement", plain_produce.acknowledgement_in_python)
    monkeypatch.setattr(compiled, "ENCODE_RECORDS", None)
    for table in (compiled.DECODERS, compiled.ENCODERS):
        for key in list(table):
            monkeypatch.delitem(table, key)
