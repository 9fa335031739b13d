"""The choice of log directories (KIP-113), and updates of features (KIP-584)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.task import Clock

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.handlers.alter_replica_log_dirs import AlterReplicaLogDirsHandler
from holdfast_log.broker.handlers.update_features import UpdateFeaturesHandler
from holdfast_log.broker.log import directory_choices
from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.broker.log.directory_choices import DirectoryChoices
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.replication.log_moves import LogMoves
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.cluster_rights import ClusterRights
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.broker.transactions.settings import TransactionVersionSetting
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from holdfast_log.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.broker.world import World, fired
from tests.models.logs import sim_disk

HERE, ELSEWHERE, NEW = TopicPartition("here", 0), TopicPartition("elsewhere", 0), TopicPartition("new", 3)


def directories(*paths: str) -> list[LogDirectory]:
    disk = sim_disk()
    return [LogDirectory(disk, path) for path in paths]


class TestLogDirs:
    @pytest.fixture
    def logs(self) -> Any:
        first, second, broken = directories("/first", "/second", "/broken")
        first.logs[HERE] = cast(Any, None)
        second.logs[ELSEWHERE] = cast(Any, "a log")
        broken.failure = OSError("broken")
        return SimpleNamespace(
            directories=[first, second, broken],
            find=lambda partition: second.logs.get(partition) or first.logs.get(partition),
            choices=DirectoryChoices(),
        )

    def choose(self, logs: Any, *chosen: tuple[TopicPartition, str]) -> list[ErrorCode]:
        dirs = [
            AlterReplicaLogDir(
                path=path,
                topics=[AlterReplicaLogDirTopic(name=partition.topic, partitions=[partition.partition])],
            )
            for partition, path in chosen
        ]
        self.moves: list[tuple[TopicPartition, LogDirectory | None]] = []
        moves = SimpleNamespace(
            begin=lambda partition, target: self.moves.append((partition, target)),
            cancel=lambda partition: self.moves.append((partition, None)),
        )
        handler = AlterReplicaLogDirsHandler(
            cast(LogManager, logs), cast(LogMoves, moves), ClusterRights(), LongAnswers(Clock())
        )
        response = fired(handler.handle(RequestContext(2, "", None), AlterReplicaLogDirsRequest(dirs=dirs)))
        return [ErrorCode(row.error_code) for topic in response.results for row in topic.partitions]

    def test_a_new_replica_gets_its_log_in_the_chosen_directory(self, logs: Any) -> None:
        assert self.choose(logs, (NEW, "/first")) == [ErrorCode.REPLICA_NOT_AVAILABLE]
        assert self.choose(logs, (NEW, "/second")) == [ErrorCode.REPLICA_NOT_AVAILABLE]
        live = logs.directories[:2]
        live[1].logs[NEW] = None
        assert logs.choices.take(NEW, live) is live[1]
        assert logs.choices.take(NEW, live) is live[0], "the emptiest: the choice was for one log"

    def test_a_chosen_directory_that_has_failed_is_not_used(self, logs: Any) -> None:
        self.choose(logs, (NEW, "/second"))
        assert logs.choices.take(NEW, logs.directories[:1]) is logs.directories[0]

    def test_a_replica_that_is_there_stays_and_another_moves(self, logs: Any) -> None:
        assert self.choose(logs, (HERE, "/first"), (ELSEWHERE, "/first")) == [ErrorCode.NONE] * 2
        assert self.moves == [(HERE, None), (ELSEWHERE, logs.directories[0])]

    @pytest.mark.parametrize(
        ("partition", "path", "error"),
        [
            (NEW, "/third", ErrorCode.LOG_DIR_NOT_FOUND),
            (NEW, "first", ErrorCode.LOG_DIR_NOT_FOUND),
            (NEW, "", ErrorCode.LOG_DIR_NOT_FOUND),
            (NEW, "/broken", ErrorCode.KAFKA_STORAGE_ERROR),
            (TopicPartition("../x", 0), "/first", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ],
    )
    def test_what_cannot_be_chosen_is_refused(
        self, logs: Any, partition: TopicPartition, path: str, error: ErrorCode
    ) -> None:
        assert self.choose(logs, (partition, path)) == [error]

    def test_a_partition_is_named_once(self, logs: Any) -> None:
        twice = self.choose(logs, (NEW, "/first"), (ELSEWHERE, "/first"), (NEW, "/second"))
        assert twice == [ErrorCode.INVALID_REQUEST] * 2, "one for each partition"
        assert not self.moves

    def test_choices_have_a_limit(self, logs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(directory_choices, "CHOICES_MAX", 2)
        first, second = logs.directories[:2]
        second.logs[NEW] = None
        for index in range(3):
            logs.choices.choose(TopicPartition("t", index), second)
        taken = [logs.choices.take(TopicPartition("t", index), [first, second]) for index in range(3)]
        assert taken == [first, second, second]


def test_a_log_is_created_where_an_operator_wants_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    (directory,) = world.logs.directories
    other = LogDirectory(directory.disk, directory.path + "-other")
    directory.disk.make_directory(other.path)
    world.logs.directories.append(other)
    partition = TopicPartition("t", 0)
    world.logs.choices.choose(partition, other)
    assert world.logs.get_or_create(partition).directory.startswith(other.path)


class TestFeatures:
    def update(self, name: str, level: int, version: int = 1, setting: int = 2) -> UpdateFeaturesResponse:
        handler = UpdateFeaturesHandler(
            ClusterRights(), MetadataCache(), TransactionVersionSetting(setting), LongAnswers(Clock())
        )
        updates = [FeatureUpdateKey(feature=name, max_version_level=level)]
        asked = UpdateFeaturesRequest(feature_updates=updates)
        return cast(UpdateFeaturesResponse, fired(handler.handle(RequestContext(version, "", None), asked)))

    @pytest.mark.parametrize(
        ("name", "level", "setting", "message"),
        [
            ("transaction.version", 1, 2, "set transaction.version in all of them"),
            ("transaction.version", 2, 1, "set transaction.version in all of them"),
            ("transaction.version", 0, 2, "set transaction.version in all of them"),
            ("metadata.version", 20, 2, "no such feature"),
            ("holdfast.own", 2, 2, "cannot be changed"),
        ],
    )
    def test_no_request_changes_a_feature(self, name: str, level: int, setting: int, message: str) -> None:
        response = self.update(name, level, 1, setting)
        assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
        (row,) = response.results
        assert (row.feature, row.error_code) == (name, ErrorCode.INVALID_REQUEST)
        assert message in str(row.error_message)
        response = self.update(name, level, 2, setting)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert message in str(response.error_message)

    @pytest.mark.parametrize(("level", "setting"), [(2, 2), (1, 1), (0, 0), (-1, 0)])
    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_an_update_to_what_is_in_force_is_accepted(self, version: int, level: int, setting: int) -> None:
        response = self.update("transaction.version", level, version, setting)
        assert response.error_code == ErrorCode.NONE
        assert [row.error_code for row in response.results] == [ErrorCode.NONE]
