"""The admin client for asyncio.

async with AsyncAdmin({"bootstrap.servers": "localhost:9092"}) as admin:
    await admin.create_topics([NewTopic("arrivals", partitions=6)])
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

from holdfast_log.clients.admin.admin import Admin
from holdfast_log.clients.aio.calls import awaited, passed_on
from holdfast_log.clients.aio.home_loop import HomeLoop
from holdfast_log.clients.aio.worker import Worker
from holdfast_log.clients.config import Properties
from holdfast_log.clients.connection.connection import Connection
from holdfast_log.clients.connection.network import ClientNetwork
from holdfast_log.clients.feedback.events import OnEvent

T = TypeVar("T")


class InterruptibleConnection:
    """The connection of a client whose calls wait for brokers."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def interrupt(self, thread: int) -> None:
        self._connection.interrupt(thread)

    def forget_interruption(self) -> None:
        self._connection.forget_interruption()

    def discard(self) -> None:
        self._connection.close()


class AsyncAdmin:
    """Manages a cluster: every method of Admin, as a coroutine with the same arguments, results and errors.

    Calls of several tasks are made one after the other. A call that is cancelled ends at once for its caller;
    the broker may still carry out what it was sent. `on_event` is called in the loop. Belongs to the event
    loop that runs when it is made, or in which it is first used: raises WrongLoopError in others.
    """

    def __init__(
        self,
        properties: Properties,
        *,
        network: ClientNetwork | None = None,
        rng: random.Random | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        home = HomeLoop("AsyncAdmin")
        tell: OnEvent | None = None
        if on_event is not None:
            application = on_event
            tell = lambda event: home.tell(application, event)  # noqa: E731
        self._client = Admin(properties, network=network, rng=rng, on_event=tell)
        self._worker = Worker(home, InterruptibleConnection(self._client._connection), self)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings in force."""
        return self._client.settings

    async def _call(self, call: Callable[[], T]) -> T:
        return await self._worker.run(call)

    create_topics = awaited(Admin.create_topics)
    delete_topics = awaited(Admin.delete_topics)
    create_partitions = awaited(Admin.create_partitions)
    list_topics = awaited(Admin.list_topics)
    describe_topics = awaited(Admin.describe_topics)
    describe_cluster = awaited(Admin.describe_cluster)
    describe_api_versions = awaited(Admin.describe_api_versions)
    describe_log_dirs = awaited(Admin.describe_log_dirs)
    alter_replica_log_dirs = awaited(Admin.alter_replica_log_dirs)
    describe_configs = awaited(Admin.describe_configs)
    alter_configs = awaited(Admin.alter_configs)
    list_offsets = awaited(Admin.list_offsets)
    delete_records = awaited(Admin.delete_records)
    elect_leaders = awaited(Admin.elect_leaders)
    alter_partition_reassignments = awaited(Admin.alter_partition_reassignments)
    list_partition_reassignments = awaited(Admin.list_partition_reassignments)
    list_groups = awaited(Admin.list_groups)
    describe_groups = awaited(Admin.describe_groups)
    describe_consumer_groups = awaited(Admin.describe_consumer_groups)
    delete_groups = awaited(Admin.delete_groups)
    list_group_offsets = awaited(Admin.list_group_offsets)
    alter_group_offsets = awaited(Admin.alter_group_offsets)
    delete_group_offsets = awaited(Admin.delete_group_offsets)
    create_managed_group = awaited(Admin.create_managed_group)
    delete_managed_groups = awaited(Admin.delete_managed_groups)
    list_managed_groups = awaited(Admin.list_managed_groups)
    rewind_group = awaited(Admin.rewind_group)
    describe_owners = awaited(Admin.describe_owners)
    force_release = awaited(Admin.force_release)
    check_token = awaited(Admin.check_token)
    describe_client_quotas = awaited(Admin.describe_client_quotas)
    alter_client_quotas = awaited(Admin.alter_client_quotas)
    create_acls = awaited(Admin.create_acls)
    describe_acls = awaited(Admin.describe_acls)
    delete_acls = awaited(Admin.delete_acls)
    describe_scram_credentials = awaited(Admin.describe_scram_credentials)
    alter_scram_credentials = awaited(Admin.alter_scram_credentials)
    list_transactions = awaited(Admin.list_transactions)
    describe_transactions = awaited(Admin.describe_transactions)
    describe_producers = awaited(Admin.describe_producers)
    abort_transaction = awaited(Admin.abort_transaction)
    fence_producers = awaited(Admin.fence_producers)
    feedback = passed_on(Admin.feedback)

    async def close(self) -> None:
        """Close all connections. Calls under way fail with ClosedError."""
        await self._worker.run_last(self._client.close)

    async def __aenter__(self) -> Self:
        self._worker.home.enter()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
