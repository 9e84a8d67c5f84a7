"""The event types of an organization's people, all on its stream `people`. Joined to the others by `catalogue`."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from noetl.model.event_type import EventType

PEOPLE_STREAM: Final = "people"
UserRole = Literal["reader", "writer", "admin"]


class OrgCreated(msgspec.Struct, frozen=True):
    """What the organization is called, and who it belongs to."""

    name: str
    tenant_name: str | None = None


class UserAdded(msgspec.Struct, frozen=True):
    """Who it is and what this person may do."""

    user_id: str
    email: str
    role: UserRole
    external_id: str | None = None


class UserRoleChanged(msgspec.Struct, frozen=True):
    """What a person may do from now on."""

    user_id: str
    role: UserRole


class UserNamed(msgspec.Struct, frozen=True):
    """Which person this is about."""

    user_id: str


class RoleCreated(msgspec.Struct, frozen=True):
    """What the role is called."""

    role_id: str
    slug: str
    name: str


class RoleOf(msgspec.Struct, frozen=True):
    """Which role of which person."""

    role_id: str
    user_id: str


PEOPLE_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="org.created",
        sentence="An organization was given its name.",
        aggregate="organization",
        meta=OrgCreated,
        opens=("org",),
        changes=("org",),
    ),
    EventType(
        name="org.settings_changed",
        sentence="The settings of an organization were changed.",
        aggregate="organization",
        changes=("org",),
    ),
    EventType(
        name="user.added",
        sentence="A person was added to an organization.",
        aggregate="organization",
        meta=UserAdded,
        opens=("app_user",),
    ),
    EventType(
        name="user.role_changed",
        sentence="What a person may do was changed.",
        aggregate="organization",
        meta=UserRoleChanged,
        changes=("app_user",),
    ),
    EventType(
        name="user.removed",
        sentence="A person was removed from an organization, with all roles.",
        aggregate="organization",
        meta=UserNamed,
        ends=("app_user", "org_role_membership"),
    ),
    EventType(
        name="role.created",
        sentence="A role of the organization's own was made.",
        aggregate="organization",
        meta=RoleCreated,
        opens=("org_role",),
        changes=("org_role",),
    ),
    EventType(
        name="role.granted",
        sentence="A person was given a role.",
        aggregate="organization",
        meta=RoleOf,
        opens=("org_role_membership",),
    ),
    EventType(
        name="role.revoked",
        sentence="A role was taken from a person.",
        aggregate="organization",
        meta=RoleOf,
        ends=("org_role_membership",),
    ),
)
"""In the order an organization meets them."""
