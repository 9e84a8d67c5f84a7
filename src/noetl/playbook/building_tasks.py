"""Makes the values of tasks from nodes that fit the grammar; every field of a kind gets its one name here."""

from __future__ import annotations

import base64
from typing import Any

from noetl.playbook.fitting import DURATION, seconds_of
from noetl.playbook.grammar import TASK_FIELDS
from noetl.playbook.model import Accumulate, Output, Policy, Rule, Select, Task, Then
from noetl.playbook.origins import Origin, origins_at
from noetl.playbook.templates import is_template
from noetl.playbook.tool_fields import KINDS, handed_on_as
from noetl.playbook.tree import Node

_BODY_KINDS = {"body": "body", "payload": "body", "json": "json", "data": "data", "form": "form"}


def task_from(node: Node, name: str) -> Task:
    """Return the task a node stands for."""
    fields = node.plain()
    kind = fields["kind"]
    own = {key: value for key, value in fields.items() if key not in TASK_FIELDS}
    binding = fields.get("input", {})
    if kind == "playbook" and "payload" in own:
        binding = own.pop("payload")
    if kind == "workbook":
        own = {"name": own.get("task", fields.get("name"))}
    if kind == "secrets" and not {"secret", "secret_name", "path"} & own.keys():
        own["secret"] = fields.get("name")
    if kind == "nats" and str(own["operation"]).startswith("object_") and not {"key", "object"} & own.keys():
        own["object"] = fields.get("name")
    options = _options(kind, own)
    timeout = fields.get("spec", {}).get("timeout")
    if timeout is None and kind in KINDS and not KINDS[kind].waits:
        timeout = options.pop("timeout", None)
    policy = node.get("spec", "policy")
    output = fields.get("output")
    return Task(
        name=name,
        kind=kind,
        auth=fields.get("auth"),
        input=binding,
        options=options,
        timeout=duration(timeout),
        policy=_own_policy(kind, options) if policy is None else _policy(policy),
        output=None if output is None else _output(output),
        set=fields.get("set", {}),
        place=node.place,
        origins=_origins(kind, node),
    )


def origins_of(node: Node) -> Any:
    """Return the origins of everything in a node, or None if there is no template in it."""
    if isinstance(node.value, dict):
        return {key: found for key, part in node.mapping.items() if (found := origins_of(part)) is not None} or None
    if isinstance(node.value, list):
        parts = [origins_of(part) for part in node.items]
        return parts if any(part is not None for part in parts) else None
    return Origin(node.place.line, node.is_literal) if is_template(node.value) else None


def _origins(kind: str, node: Node) -> Any:
    """Return the origins of a task's fields, under the names they are handed on by."""
    names = {**handed_on_as(kind), **({"payload": "input"} if kind == "playbook" else {})}
    found = {names.get(key, key): part for key, part in (origins_of(node) or {}).items()}
    limit = origins_at(found, "spec", "timeout")
    return found if limit is None else {**found, "timeout": limit}


def duration(value: Any) -> Any:
    """Return seconds for text such as `30s`; numbers and templates stay what they are."""
    return seconds_of(value) if isinstance(value, str) and DURATION.fullmatch(value) else value


def _options(kind: str, own: dict[str, Any]) -> dict[str, Any]:
    names = handed_on_as(kind)
    options: dict[str, Any] = {}
    for key, value in own.items():
        name = names.get(key, key)
        if key.endswith("_b64") and name == "command":
            value = base64.b64decode(value).decode()
        if kind == "http" and key in _BODY_KINDS:
            options["body_kind"] = _BODY_KINDS[key]
        options[name] = value
    return options


def _own_policy(kind: str, options: dict[str, Any]) -> Policy | None:
    """Return the policy of a task that has none: an agent that says what to do when it fails is let pass then."""
    return Policy(on_unmatched="continue") if kind == "agent" and "on_failure" in options else None


def _policy(node: Node) -> Policy:
    rules = node.get("rules")
    return Policy(
        rules=() if rules is None else tuple(_rule(rule) for rule in rules.items),
        on_unmatched=node.plain().get("on_unmatched"),
    )


def _rule(node: Node) -> Rule:
    fields, origins = node.plain(), origins_of(node)
    if "else" in fields:
        return Rule(then=Then(**fields["else"]["then"]), place=node.place, origins=origins_at(origins, "else"))
    return Rule(when=fields["when"], then=Then(**fields["then"]), place=node.place, origins=origins)


def _output(fields: dict[str, Any]) -> Output:
    gathered = dict(fields["accumulate"]) if "accumulate" in fields else {"enabled": False}
    enabled = gathered.pop("enabled", True)
    gathered.pop("manifest_as", None)
    return Output(
        **{key: fields[key] for key in ("inline_max_bytes",) if key in fields},
        select=tuple(Select(item["path"], item["as"]) for item in fields.get("select", ())),
        accumulate=Accumulate(**gathered) if enabled else None,
    )
