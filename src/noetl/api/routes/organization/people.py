"""The people of an organization and its own roles."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from noetl.api.endpoint import ADMINS, Call, Routes
from noetl.api.wire import NO_NUL, Body, Name, View
from noetl.model.catalogue.people import UserRole
from noetl.services.people import People, Role, User

routes = Routes("people")

_Email = Annotated[str, Meta(min_length=3, max_length=254, pattern="^[^@\\s\\x00]+@[^@\\s\\x00]+$")]
_Slug = Annotated[str, Meta(min_length=1, max_length=63, pattern="^[a-z][a-z0-9_-]*$")]
_External = Annotated[str, Meta(min_length=1, max_length=255, pattern=NO_NUL)]


class PersonRequest(Body, frozen=True, kw_only=True):
    """A person and what they may do."""

    email: _Email
    role: UserRole = "reader"
    external_id: _External | None = None


class RoleRequest(Body, frozen=True, kw_only=True):
    """A role of the organization's own."""

    slug: _Slug
    name: Name


class MembershipRequest(Body, frozen=True, kw_only=True):
    """Who is meant."""

    email: _Email


class PeopleList(View, frozen=True, kw_only=True):
    """Everybody, by email."""

    people: list[User]


class RoleList(View, frozen=True, kw_only=True):
    """The organization's own roles, by slug."""

    roles: list[Role]


@routes.get("/api/people", ADMINS)
async def list_people(call: Call) -> PeopleList:
    """List the people of the organization with their roles."""
    return PeopleList(people=await _people(call).users(call.scope))


@routes.post("/api/people", ADMINS, repeatable=True)
async def add_person(call: Call, body: PersonRequest) -> User:
    """Add a person, or change what one may do who is there already."""
    return await _people(call).add_user(call.scope, body.email, body.role, body.external_id)


@routes.delete("/api/people/{email}", ADMINS, status=204)
async def remove_person(call: Call, email: str) -> None:
    """Remove a person with all roles."""
    await _people(call).remove_user(call.scope, email)


@routes.get("/api/roles", ADMINS)
async def list_roles(call: Call) -> RoleList:
    """List the organization's own roles."""
    return RoleList(roles=await _people(call).roles(call.scope))


@routes.post("/api/roles", ADMINS, repeatable=True)
async def create_role(call: Call, body: RoleRequest) -> Role:
    """Make a role, or give the one with this slug another name."""
    return await _people(call).create_role(call.scope, body.slug, body.name)


@routes.post("/api/roles/{slug}/grant", ADMINS, repeatable=True)
async def grant_role(call: Call, slug: str, body: MembershipRequest) -> User:
    """Give a person a role; to give it twice changes nothing."""
    await _people(call).grant(call.scope, slug, body.email)
    return await _people(call).user(call.scope, body.email)


@routes.post("/api/roles/{slug}/revoke", ADMINS, repeatable=True)
async def revoke_role(call: Call, slug: str, body: MembershipRequest) -> User:
    """Take a role from a person; who has it not loses nothing."""
    await _people(call).revoke(call.scope, slug, body.email)
    return await _people(call).user(call.scope, body.email)


def _people(call: Call) -> People:
    services = call.services
    return People(services.database, services.ledger, services.mint, services.producer)
