"""The settings of a broker that limit what all its logs together remember, and how they are loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from holdfast_log.broker.log.append_ids import AppendIdLimits
from holdfast_log.broker.log.producer_totals import TotalLimits
from holdfast_log.broker.log.settings import BROKER_SETTINGS
from holdfast_log.broker.setting_groups import settings_group


@settings_group(BROKER_SETTINGS)
@dataclass(frozen=True, slots=True)
class ManagerLimits:
    """How many workers recover a log directory at once, how long the sequences of producers are kept, and
    which append ids."""

    num_recovery_threads_per_data_dir: Annotated[int, "num.recovery.threads.per.data.dir"] = 1
    producer_id_expiration_ms: Annotated[int, "producer.id.expiration.ms"] = 86_400_000
    append_ids_max: Annotated[int, "append.ids.max"] = 10_000
    append_ids_max_per_producer: Annotated[int, "append.ids.max.per.producer"] = 5_000
    append_ids_retention_ms: Annotated[int, "append.ids.retention.ms"] = 86_400_000
    append_ids_total_max: Annotated[int, "append.ids.total.max"] = 200_000
    key_memory_bytes: Annotated[int, "key.versions.total.memory.bytes"] = 256 << 20
    producer_ids_max: Annotated[int, "producer.ids.max"] = 400_000
    producer_ids_max_per_source: Annotated[int, "producer.ids.max.per.source"] = 100_000

    @property
    def append_ids(self) -> AppendIdLimits:
        return AppendIdLimits(
            self.append_ids_max, self.append_ids_max_per_producer, self.append_ids_retention_ms
        )

    @property
    def totals(self) -> TotalLimits:
        return TotalLimits(self.producer_ids_max, self.producer_ids_max_per_source, self.append_ids_total_max)
