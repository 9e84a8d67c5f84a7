"""What an event type is: its sentence, what it must carry, and its JSON Schema. The types themselves: `catalogue`."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl.model.envelope.columns import ENVELOPE_SCHEMA, MANDATORY

OPEN_PREFIX = "business."
"""Types under this prefix are the user's own: any name, free `meta`, folded by the user's business_object folds."""


class NoFields(msgspec.Struct, frozen=True):
    """No fields are asked for; others may stand beside."""


class Attempt(msgspec.Struct, frozen=True):
    """Which attempt this is about."""

    attempt: int


AttemptWord = Literal["begun", "completed", "failed", "attempt_failed", "abandoned", "returned", "skipped", "cancelled"]
"""What an event says of an attempt at a command, a frame or a task; `failed` is for good, `returned` costs none."""


class EventType(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of fact."""

    name: str
    sentence: str
    aggregate: str
    version: int = 1
    needs: tuple[str, ...] = ()
    """Envelope fields that must be present besides the mandatory ones."""
    meta: type[msgspec.Struct] = NoFields
    context: type[msgspec.Struct] = NoFields
    result: type[msgspec.Struct] = NoFields
    retried: bool = False
    """Reported from outside and sent again on doubt, so an idempotency key is mandatory."""
    once_per: str | None = None
    """The id field per which this fact may stand only once in an execution."""
    opens: tuple[str, ...] = ()
    """Tables of which it may add rows, in the transaction it is written in."""
    changes: tuple[str, ...] = ()
    """Tables of which it may change rows that stand; a row that is kept after its work has ended is one of them."""
    ends: tuple[str, ...] = ()
    """Tables of which it may remove rows."""
    projections: tuple[str, ...] = ()
    """Projections of which it changes rows; projectors do that later. `execution` counts every event besides."""
    steers: bool = False
    """Changes what the planner knows of its execution, and so what it decides next."""
    attempt: AttemptWord | None = None
    """What it says of an attempt at the leased row it changes or ends, if it says anything of one."""
    keeps_lease: bool = False
    """Changes a leased row without giving, taking or ending its lease."""
    overrules_holders: bool = False
    """Ends work whoever holds it, so all leases it ends are locked in one order before its own are looked at."""
    observed: bool = False
    """Reports what happened elsewhere and decides nothing; all others are decided, by a fence, a version or a row."""

    @property
    def ends_execution(self) -> bool:
        """Whether it ends its execution."""
        return "execution_head" in self.ends

    @property
    def tables(self) -> tuple[str, ...]:
        """Every table whose rows it may add, change or remove, each once."""
        return tuple(dict.fromkeys((*self.opens, *self.changes, *self.ends)))

    @property
    def schema_name(self) -> str:
        """The schema's name in the registry."""
        return f"noetl.{self.name}"

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the whole envelope of this type, as it stands in JSON."""
        properties = {name: dict(schema) for name, schema in ENVELOPE_SCHEMA.items()}
        properties["event_type"] = {"const": self.name}
        properties["schema_name"] = {"const": self.schema_name}
        properties["schema_version"] = {"const": self.version}
        required = [*MANDATORY, *(name for name in self.needs if name not in MANDATORY)]
        definitions: dict[str, Any] = {}
        for part in ("meta", "context", "result"):
            fields = getattr(self, part)
            properties[part], parts = _object_schema(fields)
            definitions |= parts
            if properties[part].get("required"):
                required.append(part)
        if self.retried:
            required.append("idempotency_key")
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"noetl:schema:{self.name}:{self.version}",
            "title": self.name,
            "description": self.sentence,
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
            **({"$defs": definitions} if definitions else {}),
        }


def _object_schema(fields: type[msgspec.Struct]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema of a part's fields, and the definitions it refers to."""
    (schema,), components = msgspec.json.schema_components([fields], ref_template="#/$defs/{name}")
    own = components.pop(schema["$ref"].rsplit("/", 1)[1])
    return dict(own, title=f"{fields.__name__} fields"), components
