"""Builds what authenticates clients: SASL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast_log.broker.network.admission import BrokerAdmission
from holdfast_log.broker.security.sasl.gates import SaslGates, SaslLimits
from holdfast_log.broker.security.sasl.listeners import BrokerLogin, SaslSetup
from holdfast_log.broker.security.sasl.oauthbearer import TokenRules, VerifyToken
from holdfast_log.broker.security.sasl.revocation import LoginRevocation
from holdfast_log.broker.security.sasl.users import ScramUsers
from holdfast_log.broker.setting_groups import read_group
from holdfast_log.broker.wiring.settings import SettingsParts
from holdfast_log.broker.wiring.surroundings import Surroundings
from holdfast_log.protocol.sasl.callers import PlainCaller, SaslCaller, ScramCaller, ScramPasswords
from holdfast_log.protocol.sasl.mechanisms import PLAIN
from holdfast_log.protocol.sasl.scram import SCRAM_MECHANISMS


@dataclass(frozen=True, slots=True)
class AuthenticationParts:
    """The gates of SASL listeners, and the users with SCRAM credentials. `login` begins an authentication at
    another broker; None: the brokers' listener wants none."""

    gates: SaslGates
    scram_users: ScramUsers
    revocation: LoginRevocation
    login: Callable[[], SaslCaller] | None


def build_authentication(
    around: Surroundings, admission: BrokerAdmission, settings: SettingsParts, setup: SaslSetup
) -> AuthenticationParts:
    users = ScramUsers(settings.dynamic_configs, settings.static["scram.users.max"])
    gates = SaslGates(
        setup,
        users,
        admission.by_user,
        read_group(SaslLimits, settings.static),
        around.clock,
        around.date_ms,
        around.random.randbytes,
        _validators(around),
    )
    login = None if setup.login is None else _caller(setup.login)
    return AuthenticationParts(gates, users, LoginRevocation(gates, around.clock), login)


def _validators(around: Surroundings) -> Callable[[TokenRules], VerifyToken]:
    """Listeners with the same rules share the keys."""
    made: dict[TokenRules, VerifyToken] = {}

    def validate_by(rules: TokenRules) -> VerifyToken:
        from holdfast_log.broker.security.sasl.tokens import Tokens  # Needs PyJWT, which most do without.

        if rules not in made:
            made[rules] = Tokens(rules, around.workers, around.clock, around.date_ms).validate
        return made[rules]

    return validate_by


def _caller(login: BrokerLogin) -> Callable[[], SaslCaller]:
    if login.mechanism == PLAIN:
        return lambda: PlainCaller(login.user, login.password)
    passwords = ScramPasswords(SCRAM_MECHANISMS[login.mechanism], login.user, login.password)
    return lambda: ScramCaller(passwords)
