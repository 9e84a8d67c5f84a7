"""How long an organization keeps what: the settings' defaults, and what the organization decided for itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec

from noetl.errors import InputError

Days = Annotated[int, msgspec.Meta(ge=0, le=36_500)]
Months = Annotated[int, msgspec.Meta(ge=1, le=1200)]


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """None means for ever. `grace_hours` comes on top of every other time that is about data in the lake."""

    as_of_days: Days | None = None
    """Every point of so many days back stays answerable, for every dataset."""
    generation_days: Days | None = None
    """A generation that nobody uses stays so long."""
    keep_generations: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 2
    """So many unused generations of each dataset stay, the newest, however old."""
    grace_hours: Annotated[int, msgspec.Meta(ge=0, le=8760)] = 24
    """What nothing keeps any more stays so long for those who are reading it."""
    staging_days: Days | None = 7
    """Files of attempts that came to nothing."""
    task_days: Days | None = 30
    """Ended tasks of generations that were purged."""
    outbox_days: Days | None = 7
    """What followed from events and is done."""
    slot_days: Days | None = 90
    """Past runs of schedules."""
    query_days: Days | None = 90
    """Who asked what kind of query."""
    bundle_days: Days | None = 30
    """Unpacked code of DAG versions on this machine."""
    payload_grace_hours: Annotated[int, msgspec.Meta(ge=1, le=87_600)] | None = None
    """Payloads nothing refers to; None is the settings' `payload_store.gc.grace_hours`."""
    archive_months: Months | None = None
    """Archived months of the ledger; None is the settings' `event_store.retention.keep_archive_months`."""
    automatic: bool = False
    """Whether a server runs retention by itself every day."""

    @property
    def grace(self) -> timedelta:
        """The time on top."""
        return timedelta(hours=self.grace_hours)


NAMES = frozenset(Policy.__struct_fields__)


def effective(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> Policy:
    """Return what holds for an organization."""
    return _checked({**defaults, **own})


def changed(own: Mapping[str, Any], changes: Mapping[str, str]) -> dict[str, Any]:
    """Return an organization's decisions after changes as people write them; `default` takes one back."""
    result = dict(own)
    for name, text in changes.items():
        if name not in NAMES:
            near = get_close_matches(name, sorted(NAMES), n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(NAMES))}"
            raise InputError(f"a retention policy has no {name!r}", hint=hint)
        if text == "default":
            result.pop(name, None)
        else:
            result[name] = _value(name, text)
    _checked(result)
    return result


def _value(name: str, text: str) -> Any:
    if text in ("forever", "null"):
        return None
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        raise InputError(
            f"{name} cannot be {text!r}", hint="give a whole number, `forever`, true or false, or `default`"
        ) from None


def _checked(values: Mapping[str, Any]) -> Policy:
    try:
        return msgspec.convert(dict(values), Policy)
    except msgspec.ValidationError as problem:
        raise InputError(f"this is no retention policy: {problem}") from None
