"""Settings of what a server does on behalf of organizations: where its requests go, and as whom."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from noetl.runtime.settings.types import Section

Identity = Literal["aws", "azure", "environment", "file", "gcp", "k8s", "lambda", "vault"]
OrganizationName = Annotated[str, StringConstraints(pattern=r"^[^/\s]+/[^/\s]+$")]


def _place(text: str) -> str:
    """Return a host or network as it is, or refuse what is neither."""
    host = text.removeprefix("*.")
    if "/" in text or ":" in text:
        try:
            ip_network(text, strict=False)
        except ValueError:
            raise PydanticCustomError("place", "must be a host, *.domain, an address or a network") from None
    elif not host or set(host) & set("*?#@ \t"):
        raise PydanticCustomError("place", "must be a host, *.domain, an address or a network")
    return text


Place = Annotated[str, AfterValidator(_place)]


class Outgoing(Section):
    """Where requests go that a server makes on behalf of an organization."""

    allowed: tuple[Place, ...] = Field(
        default=(),
        description="Hosts (`vault.internal`, `*.internal`) and networks (`10.1.0.0/16`) that a server may reach on behalf of "
        "users although they are not global addresses. Other addresses of this machine, of private networks and of cloud "
        "metadata are refused once the organization has had a token.",
    )


class Grant(Section):
    """What one organization, named as `tenant/organization`, may use of the server."""

    identities: tuple[Identity, ...] = Field(
        default=(),
        description="Identities of the server that keychains and functions of the organization may use: `vault` (VAULT_TOKEN), "
        "`aws`, `azure`, `gcp` (what their clients find), `lambda`, `environment` (SECRET_* variables), `file` and `k8s` "
        "(mounted secrets). Without a grant there are none once the organization has had a token.",
    )


class Secrets(Section):
    """Whose keychains may use what the server itself is logged in to."""

    grants: dict[OrganizationName, Grant] = Field(default={})
