"""The parts of a running console, built once; pages get them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from holdfast_log.clients.admin import Admin, TransactionDescription, TransactionListing
from holdfast_log.console import wording
from holdfast_log.console.asking.gathering import Clocks, gather
from holdfast_log.console.asking.group_questions import GroupDetail, group_detail
from holdfast_log.console.asking.lookups import Lookups
from holdfast_log.console.asking.snapshot import ClusterSnapshot
from holdfast_log.console.asking.topic_questions import TopicDetail, topic_detail
from holdfast_log.console.asking.transaction_questions import all_transactions, transaction_detail
from holdfast_log.console.asking.watch import Watch
from holdfast_log.console.asking.work import Clients, QuestionWorkers, RunBlocking, T
from holdfast_log.console.curve import curve
from holdfast_log.console.guarding.login import LoginCheck, check_by_connecting
from holdfast_log.console.guarding.visitors import Visitors
from holdfast_log.console.options import ConsoleOptions
from holdfast_log.protocol.acl_bindings import acl_name

HERE = Path(__file__).parent
TEMPLATES = HERE / "templates"
STATIC = HERE / "static"


@dataclass(frozen=True, slots=True)
class ConsoleParts:
    """Everything that pages use. Methods that ask the cluster run in worker threads."""

    options: ConsoleOptions
    clients: Clients
    run: RunBlocking
    clocks: Clocks
    watch: Watch
    groups: Lookups[str, GroupDetail]
    topics: Lookups[str, TopicDetail]
    transactions: Lookups[str, tuple[TransactionListing, ...]]
    """All of the cluster, under the key of the empty text."""
    transaction: Lookups[str, TransactionDescription]
    visitors: Visitors
    check_login: LoginCheck
    templates: Environment

    async def ask(self, personal: Mapping[str, Any], question: Callable[[Admin], T]) -> T:
        """Put a question to the cluster, with the rights of the person who has these properties."""

        def work() -> T:
            with self.clients.admin(personal) as admin:
                return question(admin)

        return await self.run(work)


def build_parts(
    properties: Mapping[str, Any],
    options: ConsoleOptions,
    *,
    clients: Clients | None = None,
    run: RunBlocking | None = None,
    clocks: Clocks | None = None,
    check_login: LoginCheck | None = None,
) -> ConsoleParts:
    """The parts of a console for the cluster of `properties`. Raises ConfigError for wrong ones."""
    known_clients = clients or Clients(properties)
    known_run = run or QuestionWorkers()
    known_clocks = clocks or Clocks()

    async def look(before: ClusterSnapshot | None) -> ClusterSnapshot:
        return await known_run(partial(gather, known_clients, before, known_clocks))

    def shared(question: Callable[[Admin, str], T], name: str) -> T:
        with known_clients.shared_admin() as admin:
            return question(admin, name)

    async def group(name: str) -> GroupDetail:
        return await known_run(lambda: shared(group_detail, name))

    async def topic(name: str) -> TopicDetail:
        return await known_run(lambda: shared(topic_detail, name))

    async def transactions(name: str) -> tuple[TransactionListing, ...]:
        return await known_run(lambda: shared(all_transactions, name))

    async def transaction(name: str) -> TransactionDescription:
        return await known_run(lambda: shared(transaction_detail, name))

    age_s = options.refresh_s * 0.8
    return ConsoleParts(
        options,
        known_clients,
        known_run,
        known_clocks,
        Watch(look, options.refresh_s, known_clocks.steady),
        Lookups(group, age_s, steady=known_clocks.steady),
        Lookups(topic, age_s, steady=known_clocks.steady),
        Lookups(transactions, age_s, steady=known_clocks.steady),
        Lookups(transaction, age_s, steady=known_clocks.steady),
        Visitors(is_secure=options.is_secure, steady=known_clocks.steady),
        check_login or check_by_connecting(known_clients),
        build_templates(),
    )


def build_templates() -> Environment:
    """The templates. Everything is escaped, and a name that is missing is an error."""
    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=wording.harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for function in (
        wording.number, wording.rate, wording.size, wording.count, wording.moment, wording.precise,
        wording.iso, wording.with_code, wording.span, wording.resource_name, wording.group_name,
        wording.group_protocol, wording.ids, wording.acl_sentence, acl_name, curve,
    ):  # fmt: skip
        found.globals[function.__name__] = function
    found.globals["reasons"] = wording.REASONS
    found.globals["kind_names"] = wording.KINDS
    found.globals["states"] = wording.STATES
    found.globals["mark"] = _mark
    found.globals["asset_version"] = _asset_version()
    found.globals["pieces"] = found.get_template("pieces.html").module
    return found


def _mark(kind: str, text: str) -> Markup:
    """A short word with a sign and a colour: good, warn, bad or plain."""
    signs = {"good": "●", "warn": "▲", "bad": "■", "plain": "○"}
    sign = Markup('<span class="sign" aria-hidden="true">{}</span>').format(signs[kind])
    return Markup('<span class="mark {}">{}{}</span>').format(kind, sign, str(wording.harmless(text)))


def _asset_version() -> str:
    """Changes whenever the style sheet or the script may have."""
    return str(
        max(int(path.stat().st_mtime) for path in STATIC.iterdir()) if STATIC.exists() else int(time.time())
    )
