"""The users with SCRAM credentials: this broker's copy of /config/users, and changes to it (KIP-554)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.quotas.entities import USERS, QuotaEntity, entity_at, sanitized
from holdfast_log.broker.security.sasl.scram import decoy
from holdfast_log.coordinator.cluster.dynamic_configs import DynamicConfigs
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.zookeeper.interface import RequestTooLarge, SessionExpired
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.sasl.mechanisms import SaslError
from holdfast_log.protocol.sasl.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES_MAX,
    SCRAM_MECHANISMS,
    ScramCredential,
    ScramMechanism,
    credential_of,
    decode_credential,
    encode_credential,
)

_log = logging.getLogger(__name__)

USER_CHARACTERS_MAX = 255


@dataclass(frozen=True, slots=True, repr=False)
class ScramChange:
    """What to do with one user's credential of one mechanism: replace it, or remove it (None)."""

    mechanism: ScramMechanism
    credential: ScramCredential | None


class ScramUsers:
    """The credentials by mechanism and user. Call `configs_changed` with each change of dynamic configs.

    At most `users_max` users have credentials. `secret` makes decoys; all brokers of a cluster have the same.
    """

    def __init__(self, dynamic: DynamicConfigs, users_max: int) -> None:
        self.secret = b""
        self._dynamic = dynamic
        self._users_max = users_max
        self._credentials: dict[str, dict[ScramMechanism, ScramCredential]] = {}
        self._usual: dict[ScramMechanism, int] = {}
        """By mechanism, the number of iterations that most credentials have."""
        self._revocation_listeners: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._credentials)

    def add_revocation_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` each time after a credential was removed, or replaced by another."""
        self._revocation_listeners.append(listener)

    def configs_changed(self, kind: str, name: str, configs: Mapping[str, str]) -> None:
        """Take over the present configs of an entity in ZooKeeper."""
        user = _user_at(kind, name)
        if user is None:
            return
        found = _credentials_in(name, configs)
        self._usual.clear()
        before = self._credentials.get(user, {})
        if found:
            self._credentials[user] = found
        else:
            self._credentials.pop(user, None)
        if any(found.get(mechanism) != credential for mechanism, credential in before.items()):
            for listener in self._revocation_listeners:
                listener()

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """A user's credential; None if there is none."""
        return self._credentials.get(user, {}).get(mechanism)

    def stand_in(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        """A decoy for this user, with as many iterations as most credentials have."""
        usual = self._usual.get(mechanism)
        if usual is None:
            all_of_them = (each.get(mechanism) for each in self._credentials.values())
            counted = Counter(each.iterations for each in all_of_them if each is not None)
            usual = max(counted, key=lambda count: (counted[count], -count), default=ITERATIONS_MIN)
            self._usual[mechanism] = usual
        return decoy(self.secret, mechanism, user, usual)

    def describe(self, users: Iterable[str] | None) -> dict[str, dict[ScramMechanism, int]]:
        """The iterations by mechanism, of these users or of all. Without users that have no credential."""
        names = sorted(self._credentials) if users is None else users
        return {
            name: {mechanism: each.iterations for mechanism, each in sorted(found.items())}
            for name in names
            if (found := self._credentials.get(name))
        }

    def reload(self) -> Deferred[None]:
        """Read all users now, without waiting for notifications."""
        return self._dynamic.reload((USERS,))

    def alter(self, user: str, changes: Iterable[ScramChange]) -> Deferred[BrokerError | None]:
        """Carry out all changes of a user, or none. The user's quotas stay. The result is None, or the error
        that prevented it."""
        wanted = tuple(changes)
        is_new = user not in self._credentials and any(each.credential is not None for each in wanted)
        if is_new and len(self._credentials) >= self._users_max:
            return succeed(
                BrokerError(
                    ErrorCode.POLICY_VIOLATION,
                    f"scram.users.max={self._users_max} users have credentials: remove some first",
                )
            )

        def change(configs: dict[str, str]) -> dict[str, str]:
            for each in wanted:
                name = each.mechanism.sasl_name
                if each.credential is not None:
                    configs = {**configs, name: encode_credential(each.credential)}
                elif name in configs:
                    configs = {key: value for key, value in configs.items() if key != name}
                else:
                    raise BrokerError(
                        ErrorCode.RESOURCE_NOT_FOUND,
                        "Attempt to delete a user credential that does not exist",
                    )
            return configs

        altered = self._dynamic.update(USERS, sanitized(user), change)
        return altered.addCallbacks(lambda _: None, _not_altered)


def check_user(user: str) -> None:
    """Raises BrokerError UNACCEPTABLE_CREDENTIAL for a name that no user can have."""
    if not user:
        raise _unacceptable("Username must not be empty")
    if len(user) > USER_CHARACTERS_MAX or user in (".", ".."):
        raise _unacceptable(f"a user's name has at most {USER_CHARACTERS_MAX} characters, and is not . or ..")


def mechanism_of(code: int) -> ScramMechanism:
    """The mechanism with this code. Raises BrokerError UNSUPPORTED_SASL_MECHANISM."""
    try:
        return ScramMechanism(code)
    except ValueError:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"Unknown SCRAM mechanism {code}: expected 1 (SCRAM-SHA-256) or 2 (SCRAM-SHA-512)",
        ) from None


def new_credential(
    mechanism: ScramMechanism, salt: bytes, salted_password: bytes, iterations: int
) -> ScramCredential:
    """The credential that a client asks to store. Raises BrokerError UNACCEPTABLE_CREDENTIAL."""
    if iterations < ITERATIONS_MIN:
        raise _unacceptable(f"Too few iterations: at least {ITERATIONS_MIN} are needed, not {iterations}")
    if iterations > ITERATIONS_MAX:
        raise _unacceptable(f"Too many iterations: at most {ITERATIONS_MAX} are allowed, not {iterations}")
    if not 0 < len(salt) <= SALT_BYTES_MAX:
        raise _unacceptable(f"a salt has 1 to {SALT_BYTES_MAX} bytes, this one has {len(salt)}")
    if len(salted_password) != mechanism.digest_bytes:
        raise _unacceptable(
            f"a salted password of {mechanism.sasl_name} has {mechanism.digest_bytes} bytes, this one has "
            f"{len(salted_password)}"
        )
    return credential_of(mechanism, salted_password, salt, iterations)


def _unacceptable(message: str) -> BrokerError:
    return BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)


def _user_at(kind: str, name: str) -> str | None:
    """The user whose znode this is; None if it is that of no single user."""
    entity = entity_at(kind, name) if kind == USERS and "/" not in name else None
    return entity.user if isinstance(entity, QuotaEntity) and isinstance(entity.user, str) else None


def _credentials_in(name: str, configs: Mapping[str, str]) -> dict[ScramMechanism, ScramCredential]:
    found = {}
    for title, mechanism in SCRAM_MECHANISMS.items():
        if title not in configs:
            continue
        try:
            found[mechanism] = decode_credential(mechanism, configs[title])
        except SaslError as error:
            _log.error(
                "Ignoring the credential %s in /config/users/%s, so the user cannot log in: %s",
                title,
                name,
                error,
            )
    return found


def _not_altered(failure: Failure) -> BrokerError:
    if isinstance(failure.value, BrokerError):
        return failure.value
    if failure.check(SessionExpired):
        return BrokerError(
            ErrorCode.BROKER_NOT_AVAILABLE, "this broker is stopping: ask again, by any other broker"
        )
    failure.trap(BadZnode, RequestTooLarge)
    return BrokerError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"the present credentials cannot be read, so nothing was changed: {failure.getErrorMessage()}; "
        "repair or remove the znode",
    )
