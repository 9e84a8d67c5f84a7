"""The types of credentials: their data go in, problems or the secret fields come out. Knows names, never values."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from noetl.errors import InputError


class CredentialType(NamedTuple):
    """What the data of one type must hold, and which of it is no secret."""

    needs: tuple[tuple[str, ...], ...]
    """Each needed thing, by the names it may have; the first is the one to use."""
    whole: tuple[str, ...] = ()
    """Fields of which one alone is enough."""
    shown: frozenset[str] = frozenset()
    """Fields that are no secrets; every other field is one."""


def _shown(names: str) -> frozenset[str]:
    return frozenset(names.split())


TYPES: dict[str, CredentialType] = {
    "postgres": CredentialType(
        (("db_host", "host"), ("db_user", "user", "username"), ("db_name", "database", "dbname")),
        ("dsn", "connection_string", "url"),
        _shown("db_host host db_port port db_user user username db_name database dbname db_schema schema sslmode"),
    ),
    "oauth2": CredentialType(
        (("client_id",), ("client_secret", "refresh_token")),
        ("access_token",),
        _shown("client_id endpoint token_url token_uri auth_url scope scopes audience grant_type client_auth"),
    ),
    "bearer": CredentialType((("token", "access_token"),), shown=_shown("header prefix scheme")),
    "basic": CredentialType((("username", "user"), ("password",)), shown=_shown("username user")),
    "api_key": CredentialType(
        (("key", "api_key", "value", "token"),),
        shown=_shown("header header_name name param query_param in location prefix"),
    ),
    "service_account": CredentialType(
        (("client_email",), ("private_key",)),
        ("service_account_json",),
        _shown(
            "type project_id client_email client_id auth_uri token_uri auth_provider_x509_cert_url"
            " client_x509_cert_url universe_domain scopes subject"
        ),
    ),
    "snowflake": CredentialType(
        (
            ("sf_account", "account"),
            ("sf_user", "user"),
            ("sf_password", "password", "sf_private_key", "private_key", "sf_token", "token"),
        ),
        shown=_shown(
            "sf_account account sf_user user sf_warehouse warehouse sf_database database sf_schema schema sf_role role"
            " authenticator"
        ),
    ),
    "nats": CredentialType(
        (("nats_url", "url", "servers"),), shown=_shown("nats_url url servers nats_user user username")
    ),
    "mcp": CredentialType(
        (("endpoint", "url", "command"),), shown=_shown("endpoint url command args cwd protocol_version token_type")
    ),
    "kafka": CredentialType(
        (("bootstrap_servers", "brokers"),),
        shown=_shown(
            "bootstrap_servers brokers security_protocol sasl_mechanism sasl_username username group_id client_id"
        ),
    ),
    "pubsub": CredentialType(
        (("project_id", "project"),),
        ("endpoint",),
        _shown("project_id project topic subscription client_email client_id type token_uri auth_uri endpoint"),
    ),
    "gcs_hmac": CredentialType(
        (("key_id", "access_key", "access_key_id"), ("secret_key", "secret", "secret_access_key")),
        shown=_shown("key_id access_key access_key_id type service scope region bucket endpoint"),
    ),
    "s3": CredentialType(
        (
            ("access_key_id", "access_key", "aws_access_key_id", "key_id"),
            ("secret_access_key", "secret_key", "aws_secret_access_key", "secret"),
        ),
        shown=_shown(
            "access_key_id access_key aws_access_key_id key_id region region_name endpoint endpoint_url bucket url_style"
            " use_ssl scope service type"
        ),
    ),
}


def check(name: str, type_name: str, data: object) -> None:
    """Raise `InputError` with everything that is wrong with a credential's type and data."""
    chosen = TYPES.get(type_name)
    if chosen is None:
        near = get_close_matches(type_name, TYPES, n=1)
        question = f"; did you mean {near[0]!r}?" if near else ""
        raise InputError(
            f"credential {name!r}: {type_name!r} is no type of credential{question}",
            hint=f"the types are {', '.join(sorted(TYPES))}",
        )
    if not isinstance(data, Mapping) or not all(isinstance(key, str) for key in data):
        raise InputError(f"credential {name!r}: its data are not an object with named fields")
    problems = [] if any(_given(data, field) for field in chosen.whole) else list(_missing(chosen, data))
    if problems:
        instead = f" (or {' or '.join(chosen.whole)} alone)" if chosen.whole else ""
        raise InputError(f"credential {name!r} of type {type_name}: {'; '.join(problems)}{instead}")


def shown_fields(type_name: str) -> frozenset[str]:
    """Return the names of the fields that are no secrets in this type; an unknown type has none."""
    chosen = TYPES.get(type_name)
    return frozenset() if chosen is None else chosen.shown


def _missing(chosen: CredentialType, data: Mapping[str, Any]) -> list[str]:
    problems = []
    for names in chosen.needs:
        if any(_given(data, name) for name in names):
            continue
        present = [name for name in names if name in data]
        problems.append(f"{present[0]} is empty" if present else f"{names[0]} is missing")
    return problems


def _given(data: Mapping[str, Any], field: str) -> bool:
    return data.get(field) not in (None, "", [], {})
