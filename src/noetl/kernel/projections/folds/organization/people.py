"""The rows of an organization's people, of queries and of the readers of datasets, as the events leave them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noetl.kernel.projections.folds.fold import Row, moment
from noetl.kernel.projections.folds.organization.tables import Tables, identity, number, part
from noetl.model.event import Event


def _org_created(tables: Tables, event: Event) -> None:
    meta = event.meta
    named: Row = {"name": meta.get("name"), "tenant_name": meta.get("tenant_name") or event.tenant_id}
    known = tables["org"].setdefault("", {"settings": {}, "created_at": moment(event.ingest_time)})
    known |= named


def _settings_changed(tables: Tables, event: Event) -> None:
    known = tables["org"].get("")
    if known is not None:
        known["settings"] = part(event, "settings", {})


def _user_added(tables: Tables, event: Event) -> None:
    meta, user_id = event.meta, _user(event)
    if user_id not in tables["app_user"]:
        told = {name: meta.get(name) for name in ("external_id", "email", "role")}
        tables.put("app_user", {"user_id": user_id, **told, "added_at": moment(event.ingest_time)})


def _role_changed(tables: Tables, event: Event) -> None:
    known = tables["app_user"].get(_user(event))
    if known is not None:
        known["role"] = event.meta.get("role")


def _user_removed(tables: Tables, event: Event) -> None:
    user_id, members = _user(event), tables["org_role_membership"]
    tables["app_user"].pop(user_id, None)
    for key in [key for key, row in members.items() if row["user_id"] == user_id]:
        del members[key]


def _role_created(tables: Tables, event: Event) -> None:
    meta, role_id = event.meta, str(identity(event.meta.get("role_id")))
    new = {"role_id": role_id, "slug": meta.get("slug"), "name": meta.get("name")}
    known = tables["org_role"].setdefault(role_id, new)
    known["name"] = new["name"]


def _granted(tables: Tables, event: Event) -> None:
    role_id = str(identity(event.meta.get("role_id")))
    tables.put("org_role_membership", {"role_id": role_id, "user_id": _user(event)})


def _revoked(tables: Tables, event: Event) -> None:
    role_id = str(identity(event.meta.get("role_id")))
    tables["org_role_membership"].pop(f"{role_id}|{_user(event)}", None)


def _user(event: Event) -> str:
    return str(identity(event.meta.get("user_id")))


PEOPLE_CHANGES: Final[dict[str, Callable[[Tables, Event], None]]] = {
    "org.created": _org_created,
    "org.settings_changed": _settings_changed,
    "user.added": _user_added,
    "user.role_changed": _role_changed,
    "user.removed": _user_removed,
    "role.created": _role_created,
    "role.granted": _granted,
    "role.revoked": _revoked,
}


def _ended(tables: Tables, event: Event) -> None:
    meta = event.meta
    told = {name: meta.get(name) for name in ("code", "asked_by", "engine", "sql_sha256", "mark", "rows", "bytes")}
    tables.put(
        "query_audit",
        {
            "query_id": str(event.execution_id),
            "outcome": event.event_type.partition(".")[2],
            **told,
            "token_id": identity(meta.get("token_id")),
            "user_id": identity(meta.get("user_id")),
            "pinned": part(event, "datasets", []),
            "milliseconds": number(meta.get("milliseconds")),
            "asked_at": moment(event.ingest_time),
        },
    )


def _readers_set(tables: Tables, event: Event) -> None:
    dataset, readers = str(identity(event.meta.get("dataset_uuid"))), tables["dataset_reader"]
    for key in [key for key, row in readers.items() if row["dataset_uuid"] == dataset]:
        del readers[key]
    for role in event.meta.get("roles") or ():
        tables.put("dataset_reader", {"dataset_uuid": dataset, "role": role})


QUERIES_CHANGES: Final[dict[str, Callable[[Tables, Event], None]]] = {
    "query.answered": _ended,
    "query.refused": _ended,
    "query.failed": _ended,
    "query.readers_set": _readers_set,
}
