"""The types settings are made of: sections, names, paths, secrets, and choices whose other values come later.

A value goes in as text or as its own type; a typed value comes out. No type here ever shows a secret in a message,
a `repr` or JSON.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler, Secret, StringConstraints
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


class Section(BaseModel):
    """A group of settings: immutable, and nothing in it that is not declared."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


# Greedy up to the last @, because an unescaped password may itself hold one; masking too much is harmless.
_USERINFO = re.compile(r"^([A-Za-z][\w+.-]*://[^:@/?#]*):(.*)@", re.DOTALL)
_SECRET_PARAMETER = re.compile(r"([?&][^=&]*(?:password|secret|token|key)[^=&]*=)[^&]*", re.IGNORECASE)


class SecretUrl(Secret[str]):
    """A URL that may carry a password; it prints with the password masked."""

    def _display(self) -> str:
        masked = _USERINFO.sub(r"\1:***@", self.get_secret_value())
        return _SECRET_PARAMETER.sub(r"\1***", masked)


class SecretText(Secret[str]):
    """A text that is never printed."""


class UrlScheme:
    """Requires a well-formed URL with one of the given schemes."""

    def __init__(self, *schemes: str) -> None:
        self.schemes = schemes

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, value: SecretUrl) -> SecretUrl:
        text = value.get_secret_value()
        try:
            parts = urlsplit(text)
            sound = parts.scheme in self.schemes and parts.port != 0
        except ValueError:
            sound = False
        if not sound or not text.startswith(f"{parts.scheme}://") or parts.fragment or re.search(r"\s", text):
            raise PydanticCustomError(
                "url",
                "must be a URL that starts with {schemes}; write special characters in a password percent-encoded",
                {"schemes": " or ".join(f"{scheme}://" for scheme in self.schemes)},
            )
        return value


class Planned:
    """Names values that belong to the setting but cannot be used in this version, and what serves instead."""

    def __init__(self, *values: str, instead: str | None = None) -> None:
        self.values = values
        self.instead = instead

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        available = get_args(source) if get_origin(source) is Literal else ()

        def check(value: object) -> object:
            if value in self.values or not available:
                raise PydanticCustomError(
                    "planned",
                    "is not available in this version",
                    {"available": available, "instead": self.instead},
                )
            return value

        return core_schema.no_info_before_validator_function(check, handler(source))


def _expand_home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        raise PydanticCustomError("home", "names the home directory of a user that does not exist") from None


PostgresUrl = Annotated[SecretUrl, UrlScheme("postgresql", "postgres")]
StreamUrl = Annotated[SecretUrl, UrlScheme("nats", "tls", "postgresql", "postgres")]
HttpUrl = Annotated[SecretUrl, UrlScheme("https", "http")]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
"""A name that stands as one segment of an object path."""
NodeName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9:][A-Za-z0-9._:-]{0,127}$")]
"""A host name or an address, IPv6 too."""
Text = Annotated[str, StringConstraints(min_length=1)]
Location = Annotated[Path, AfterValidator(_expand_home)]
Count = Annotated[int, Field(ge=1)]
Amount = Annotated[int, Field(ge=0)]
