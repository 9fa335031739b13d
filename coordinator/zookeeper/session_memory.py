"""The key of a process's ZooKeeper session, kept beyond the end of the process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SessionKey:
    """The credentials with which a client resumes or closes a session."""

    session_id: int
    password: bytes


class SessionMemory(Protocol):
    """Stores the key of the current session. None of the methods may raise."""

    def recall(self) -> SessionKey | None:
        """The key left by an earlier process that is certainly dead, or None."""
        ...

    def remember(self, key: SessionKey) -> None:
        """Store the key of this process's session."""
        ...

    def forget(self) -> None:
        """Remove the key: this process has closed its session."""
        ...
