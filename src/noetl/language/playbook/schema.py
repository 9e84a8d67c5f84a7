"""The JSON Schema of a playbook for editors, made from the grammar's tables. References inside are not in it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from noetl.language.grammar.fit import DURATION
from noetl.language.grammar.shapes import (
    Anything,
    Choice,
    Condition,
    Duration,
    Either,
    Flag,
    ListOf,
    MapOf,
    Number,
    Record,
    Shape,
    TaskByKind,
    Template,
    Text,
    Whole,
)
from noetl.language.playbook.grammar.document import PLAYBOOK
from noetl.language.playbook.kinds.registry import KINDS, ONLY_READ, task_record

Schema = dict[str, Any]

_TEMPLATE: Schema = {"type": "string", "pattern": r"\{\{|\{%"}


def playbook_schema(kinds: Collection[str] = ()) -> Schema:
    """Return the JSON Schema (2020-12) of a playbook; `kinds` are further kinds of tasks, whose fields are not checked."""
    definitions: dict[str, Schema] = {"template": {**_TEMPLATE, "description": "Text with {{ … }} in it."}}
    every = list(dict.fromkeys((*KINDS, *ONLY_READ, *kinds)))
    for kind in every:
        definitions[f"{kind}_task"] = record_schema(task_record(kind), {"kind": {"const": kind}})
    definitions["task"] = {
        "type": "object",
        "required": ["kind"],
        "properties": {"kind": {"enum": every, "description": "The kind of tool."}},
        "allOf": [
            {"if": {"properties": {"kind": {"const": kind}}}, "then": {"$ref": f"#/$defs/{kind}_task"}}
            for kind in every
        ],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://noetl.io/schemas/playbook.json",
        "title": "NoETL playbook",
        **record_schema(PLAYBOOK),
        "$defs": definitions,
    }


def record_schema(record: Record, fixed: dict[str, Schema] | None = None) -> Schema:
    """Return the JSON Schema of a record; `fixed` says more about some of its fields."""
    properties: dict[str, Schema] = {
        key: {**(fixed or {}).get(key, {}), **_schema(known.shape), "description": known.doc}
        for key, known in record.fields.items()
    }
    schema: Schema = {"type": "object", "properties": properties}
    if record.doc:
        schema["description"] = record.doc
    required = [key for key, known in record.fields.items() if known.required]
    if required:
        schema["required"] = required
    if record.extra == "refused":
        schema["additionalProperties"] = False
    else:
        properties |= {key: {"not": {}, "description": f"Refused: {hint}."} for key, hint in record.removed.items()}
    groups = [_group(list(group.into), required=group.required) for group in record.alternatives]
    if groups:
        schema["allOf"] = groups
    return schema


def _group(names: list[str], *, required: bool) -> Schema:
    each = [{"required": [name]} for name in names]
    return {"oneOf": each} if required else {"oneOf": [*each, {"not": {"anyOf": each}}]}


def _schema(shape: Shape) -> Schema:
    match shape:
        case Anything():
            return {}
        case Text():
            return {"type": "string", "pattern": f"^(?:{shape.pattern})$" if shape.pattern else r"\S"}
        case Condition():
            return {"type": "string", "pattern": r"\{\{|\{%|^(true|false)$"}
        case Choice():
            return {"enum": list(shape.words)}
        case Whole():
            most = {} if shape.maximum is None else {"maximum": shape.maximum}
            return {"type": "integer", "minimum": shape.minimum, **most}
        case Number():
            return {"type": "number", "exclusiveMinimum" if shape.positive else "minimum": 0}
        case Flag():
            return {"type": "boolean"}
        case Duration():
            text = {"type": "string", "pattern": f"^(?:{DURATION.pattern})$"}
            most = {} if shape.longest is None else {"maximum": shape.longest}
            return {"anyOf": [{"type": "number", "exclusiveMinimum": 0, **most}, text]}
        case Template():
            return {"$ref": "#/$defs/template"}
        case ListOf():
            schema: Schema = {"type": "array", "items": _schema(shape.item)}
            return {**schema, "minItems": shape.minimum} if shape.minimum else schema
        case MapOf():
            return {
                "type": "object",
                "additionalProperties": _schema(shape.value),
                "propertyNames": _schema(shape.key),
            }
        case Either():
            return {"anyOf": [_schema(one) for one in shape.shapes]}
        case Record():
            return record_schema(shape)
        case TaskByKind():
            return {"$ref": "#/$defs/task"}
