"""What is to be known of a process's ZooKeeper session when the process has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SessionKey:
    """What ZooKeeper wants to be shown by whoever takes up, or ends, a session."""

    session_id: int
    password: bytes


class SessionMemory(Protocol):
    """Keeps the key of a process's session beyond the process's life. None of the methods may raise."""

    def recall(self) -> SessionKey | None:
        """The session of a process before this one, where that is sure to be dead."""
        ...

    def remember(self, key: SessionKey) -> None:
        """This process has this session."""
        ...

    def forget(self) -> None:
        """This process has ended its session."""
        ...
