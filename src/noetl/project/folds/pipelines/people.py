"""The rows of an organization and its people, from the events of the stream `people`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noetl.model.event import Event
from noetl.project.folds.fold import Row, moment
from noetl.project.folds.pipelines.tables import Tables, identity, part


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
