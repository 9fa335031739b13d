"""Access control lists: who may do what; adding an entry and removing one, each behind a confirmation."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import partial
from typing import TypeVar

from starlette.datastructures import QueryParams
from starlette.responses import RedirectResponse, Response

from holdfast_log.clients.admin import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    Admin,
    ResourcePattern,
)
from holdfast_log.clients.tools.acl_choice import OPERATIONS
from holdfast_log.console import wording
from holdfast_log.console.pages.page import (
    BadParameter,
    Visit,
    address,
    form_of,
    read_only,
    show,
    stretch,
)
from holdfast_log.protocol.acl_bindings import EVERY_HOST, acl_name, acl_named
from holdfast_log.protocol.acls import CLUSTER_NAME
from holdfast_log.protocol.errors import BrokerError, ErrorCode

E = TypeVar("E", bound=enum.IntEnum)

KINDS = tuple(OPERATIONS)
"""The kinds of resources that have access control lists."""
_TEXT_MAX = 512


async def access_page(visit: Visit) -> Response:
    snapshot = await visit.parts.watch.current()
    wanted = _filter(visit)
    find = visit.text("find").strip()
    listed = await visit.ask_about(partial(_listed, wanted))
    rows = sorted((each for each in listed or () if find.lower() in each.entry.principal.lower()), key=_order)
    kept = {name: visit.text(name).strip() or None for name in ("kind", "name", "permission", "find")}
    return await show(
        visit,
        "access.html",
        "access",
        "Access",
        snapshot=snapshot,
        has_authorizer=listed is not None,
        stretch=stretch(rows, visit.whole("page", 1, 1)),
        total=len(listed or ()),
        wanted=wanted,
        is_filtered=any(kept.values()),
        find=find,
        kinds=KINDS,
        done=_done(visit, listed or []),
        to=change_address,
        turn=lambda page: address("/access", **kept, page=page),
    )


def _filter(visit: Visit) -> AclFilter:
    """What the visitor looks for. A name finds all that applies to the resource of that name."""
    kind = _member("kind", AclResource, visit.text("kind"), AclResource.ANY)
    permission = _member("permission", AclPermission, visit.text("permission"), AclPermission.ANY)
    name = visit.text("name").strip() or None
    pattern = AclPattern.ANY if name is None else AclPattern.MATCH
    return AclFilter(kind, name, pattern, permission=permission)


def _listed(wanted: AclFilter, admin: Admin) -> list[AclBinding] | None:
    """The entries that a filter selects; None if the brokers have no authorizer."""
    try:
        return admin.describe_acls(wanted)
    except BrokerError as error:
        if error.code is not ErrorCode.SECURITY_DISABLED:
            raise
        return None


def _order(binding: AclBinding) -> tuple[object, ...]:
    pattern, entry = binding.pattern, binding.entry
    return (
        pattern.resource, pattern.name, pattern.pattern, entry.principal, entry.permission, entry.operation,
        entry.host,
    )  # fmt: skip


def change_address(path: str, binding: AclBinding, **more: object) -> str:
    """A page about one entry."""
    pattern, entry = binding.pattern, binding.entry
    return address(
        path,
        of_kind=acl_name(pattern.resource),
        of_name=pattern.name,
        pattern=acl_name(pattern.pattern),
        principal=entry.principal,
        host=entry.host,
        operation=acl_name(entry.operation),
        does=acl_name(entry.permission),
        **more,
    )


def _member(what: str, kind: type[E], given: str, default: E | None = None) -> E:
    """A member of an enumeration by its name. Raises BadParameter."""
    given = given.strip()
    if not given and default is not None:
        return default
    found = acl_named(kind, given)
    if not found:
        raise BadParameter(f"There is no {what} “{given}”.")
    return found


def _binding(given: QueryParams | Mapping[str, str]) -> AclBinding:
    """The entry that an address names. Raises BadParameter."""
    texts = {name: given.get(name, "").strip() for name in ("of_name", "principal", "host")}
    kind = _member("kind of resource", AclResource, given.get("of_kind", ""))
    pattern = _member("kind of name", AclPattern, given.get("pattern", ""), AclPattern.LITERAL)
    operation = _member("operation", AclOperation, given.get("operation", ""))
    permission = _member("permission", AclPermission, given.get("does", ""))
    if kind not in KINDS or pattern not in (AclPattern.LITERAL, AclPattern.PREFIXED):
        raise BadParameter("An entry is bound to a kind of resource, and to a name or the beginning of one.")
    if operation is AclOperation.ANY or permission is AclPermission.ANY:
        raise BadParameter("An entry allows or denies one operation, or all.")
    if any(len(text) > _TEXT_MAX for text in texts.values()):
        raise BadParameter(f"Names and principals have at most {_TEXT_MAX} characters.")
    name = CLUSTER_NAME if kind is AclResource.CLUSTER else texts["of_name"]
    entry = AclEntry(texts["principal"], texts["host"] or EVERY_HOST, operation, permission)
    return AclBinding(ResourcePattern(kind, name, pattern), entry)


def _checked(binding: AclBinding) -> None:
    """Raises BadParameter for an entry that would never hold, or that no broker takes."""
    pattern, entry = binding.pattern, binding.entry
    if not pattern.name:
        raise BadParameter("Give the name of the resource, its beginning, or * for all of the kind.")
    if pattern.resource is AclResource.CLUSTER and pattern.pattern is not AclPattern.LITERAL:
        raise BadParameter("There is one cluster only: its entries name it in full.")
    kind, colon, user = entry.principal.partition(":")
    if not (kind and colon and user):
        raise BadParameter("A principal is a kind and a name, such as User:anna. User:* is everybody.")
    usable = (AclOperation.ALL, *OPERATIONS[pattern.resource])
    if entry.operation not in usable:
        names = ", ".join(acl_name(each) for each in usable)
        raise BadParameter(f"On this kind of resource there are: {names}.")


def _done(visit: Visit, listed: list[AclBinding]) -> str:
    """What the visitor has just changed and the brokers show already."""
    done = visit.text("done")
    if done not in ("added", "removed"):
        return ""
    is_there = _binding(visit.request.query_params) in listed
    if is_there is (done == "added"):
        return f"The entry was {done}."
    return "The brokers have taken the change, and do not show it yet. Load the page again."


# Adding ---------------------------------------------------------------------------------------------------


async def add_page(visit: Visit) -> Response:
    """The form; once it is filled in, the question whether the entry shall really be added."""
    if not visit.parts.options.allow_changes:
        return await read_only(visit, "scripts/acls.sh --add")
    if "principal" not in visit.request.query_params:
        return await _form(visit)
    try:
        binding = _binding(visit.request.query_params)
        _checked(binding)
    except BadParameter as error:
        return await _form(visit, str(error))
    return await _question(visit, binding, is_added=True)


async def _form(visit: Visit, problem: str = "") -> Response:
    given = visit.request.query_params
    operations = sorted({each for found in OPERATIONS.values() for each in found})
    return await show(
        visit,
        "access_add.html",
        "access",
        "Add an entry",
        400 if problem else 200,
        problem=problem,
        given=given,
        kinds=[(acl_name(each), wording.KINDS[each].capitalize()) for each in KINDS],
        operations=[(acl_name(each), acl_name(each)) for each in (AclOperation.ALL, *operations)],
    )


async def _question(visit: Visit, binding: AclBinding, *, is_added: bool, problem: str = "") -> Response:
    pattern = binding.pattern
    applying = AclFilter(pattern.resource, pattern.name, AclPattern.MATCH)
    others = await visit.ask_about(partial(_listed, applying))
    if others is None:
        raise BadParameter("The brokers have no authorizer, so there are no entries to change.")
    path = "/access/add" if is_added else "/access/remove"
    return await show(
        visit,
        "access_change.html",
        "access",
        "Add this entry?" if is_added else "Remove this entry?",
        400 if problem else 200,
        binding=binding,
        is_added=is_added,
        is_there=binding in others,
        is_first=not others,
        problem=problem,
        target=change_address(path, binding),
    )


async def add(visit: Visit) -> Response:
    """Add the entry that the confirmation named."""
    if not visit.parts.options.allow_changes:
        return await read_only(visit, "scripts/acls.sh --add")
    fields = await form_of(visit)
    binding = _binding(visit.request.query_params)
    _checked(binding)
    if fields.get("sure") != "yes":
        return await _question(visit, binding, is_added=True, problem="Tick that you are sure.")
    await visit.ask_about(lambda admin: admin.create_acls([binding]))
    return RedirectResponse(change_address("/access", binding, done="added"), 303)


# Removing -------------------------------------------------------------------------------------------------


async def remove_page(visit: Visit) -> Response:
    """The question whether an entry shall really be removed."""
    if not visit.parts.options.allow_changes:
        return await read_only(visit, "scripts/acls.sh --remove")
    return await _question(visit, _binding(visit.request.query_params), is_added=False)


async def remove(visit: Visit) -> Response:
    """Remove exactly the entry that the confirmation named."""
    if not visit.parts.options.allow_changes:
        return await read_only(visit, "scripts/acls.sh --remove")
    fields = await form_of(visit)
    binding = _binding(visit.request.query_params)
    if fields.get("sure") != "yes":
        return await _question(visit, binding, is_added=False, problem="Tick that you are sure.")
    await visit.ask_about(lambda admin: admin.delete_acls([AclFilter.of(binding)]))
    return RedirectResponse(change_address("/access", binding, done="removed"), 303)
