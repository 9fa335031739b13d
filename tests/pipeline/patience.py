"""What tests tell Spark where a broker or a process that is late must not fail them."""

from __future__ import annotations

from functools import partial

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from holdfast_log import Lease
from holdfast_log.pipeline import reader_leases
from holdfast_log.pipeline.source import HoldfastDataSource

PATIENT = {"kafka.bootstrap.timeout.ms": "120000"}
"""Options of reads and writes that wait for a broker which is late."""
NAME = "holdfast-patient"
_SESSION_MS = 60_000


class PatientDataSource(HoldfastDataSource):
    """HoldfastDataSource whose queries keep their leases for a minute without a renewal."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        # Spark calls this in a Python process of the query.
        reader_leases.Lease = partial(Lease, session_timeout_ms=_SESSION_MS)  # type: ignore[assignment,attr-defined]
        return super().streamReader(schema)
