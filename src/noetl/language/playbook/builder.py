"""Builds the values of a playbook from a tree that matches the grammar. Nothing is checked here.

Each field of a task gets one name, whatever spelling was used.
"""

from __future__ import annotations

import base64
from typing import Any

from noetl.language.grammar.fit import DURATION, seconds_of
from noetl.language.grammar.tree import Node
from noetl.language.playbook.grammar.task import TASK_FIELDS
from noetl.language.playbook.kinds.registry import KINDS, handed_on_as
from noetl.language.playbook.model import (
    Accumulate,
    Admission,
    Arc,
    Cursor,
    Fanout,
    FramePolicy,
    KeychainEntry,
    Limits,
    Loop,
    Output,
    Playbook,
    Policy,
    Router,
    Rule,
    Select,
    Step,
    Task,
    Then,
)
from noetl.language.templates.origins import Origin, origins_at
from noetl.language.templates.template import is_template

_ENTRY_FIELDS = ("name", "kind", "scope", "auth", "auto_renew", "ttl")
_FRAME_FIELDS = tuple(FramePolicy.__struct_fields__)


def playbook_from(root: Node, digest: str) -> Playbook:
    """Return the playbook a document stands for."""
    steps = [_step(node) for node in root.mapping["workflow"].items]
    metadata = root.mapping["metadata"].plain()
    executor = _plain(root, "executor")
    spec = executor.get("spec", {})
    return Playbook(
        name=metadata["name"],
        path=catalog_path(metadata.get("path", metadata["name"])),
        metadata=metadata,
        executor=executor,
        workload=_plain(root, "workload"),
        workload_origins=None if (workload := root.get("workload")) is None else origins_of(workload),
        keychain=tuple(_entry(node) for node in _items(root, "keychain")),
        workbook={
            name: task_from(node.mapping["tool"], name)
            for node in _items(root, "workbook")
            if (name := node.mapping["name"].text)
        },
        steps={step.name: step for step in steps},
        entry=spec.get("entry_step", steps[0].name),
        final=spec.get("final_step"),
        no_next_is_error=spec.get("no_next_is_error", False),
        limits=_limits(spec.get("policy", {}).get("limits", {})),
        digest=digest,
    )


def _limits(given: dict[str, Any]) -> Limits:
    known = {name: given[name] for name in Limits.__struct_fields__ if name in given}
    return Limits(**{**known, "seconds": duration(known.get("seconds"))})


def catalog_path(path: str) -> str:
    """Return a path as the catalog keeps it: a slash before it says no more than where it begins."""
    return path.removeprefix("/")


def _entry(node: Node) -> KeychainEntry:
    fields = node.plain()
    own = {key: fields.pop(key) for key in _ENTRY_FIELDS if key in fields}
    if "ttl" in own:
        own["ttl"] = int(duration(own["ttl"]))
    return KeychainEntry(**own, options=fields, place=node.place, origins=origins_of(node))


def _step(node: Node) -> Step:
    name = str(node.mapping["step"].value)
    tool = node.mapping["tool"]
    is_sequence = isinstance(tool.value, list)
    policy = _plain(node, "spec", "policy")
    failure: Any = policy.get("failure", "fail_fast")
    return Step(
        name=name,
        description=_value(node, "desc"),
        input=_plain(node, "input"),
        loop=None if (loop := node.get("loop")) is None else _loop(loop),
        tasks=_sequence(tool) if is_sequence else (task_from(tool, name),),
        is_sequence=is_sequence,
        set=_plain(node, "set"),
        router=None if (router := node.get("next")) is None else _router(router),
        timeout=duration(_value(node, "spec", "timeout", default=policy.get("lifecycle", {}).get("timeout_s"))),
        admit=tuple(_admission(rule) for rule in policy.get("admit", {}).get("rules", ())),
        failure=failure["mode"] if isinstance(failure, dict) else failure,
        place=node.place,
        origins=origins_of(node.without("tool", "next")),
    )


def _sequence(tool: Node) -> tuple[Task, ...]:
    return tuple(task_from(node, _label(node, index)) for index, node in enumerate(tool.items, 1))


def _label(node: Node, index: int) -> str:
    name = node.get("name")
    return f"task_{index}" if name is None or name.text is None else name.text


def _admission(rule: dict[str, Any]) -> Admission:
    if "else" in rule:
        return Admission(allow=rule["else"]["then"]["allow"])
    return Admission(when=rule["when"], allow=rule["then"]["allow"])


def _router(node: Node) -> Router:
    spec = _plain(node, "spec")
    return Router(
        **{key: spec[key] for key in ("mode", "on_no_match") if key in spec},
        arcs=tuple(
            Arc(
                step=str(arc.mapping["step"].value),
                when=_value(arc, "when"),
                set=_plain(arc, "set"),
                place=arc.place,
                origins=origins_of(arc),
            )
            for arc in _items(node, "arcs")
        ),
    )


def _loop(node: Node) -> Loop:
    spec = _plain(node, "spec")
    frame = spec.get("frame", {})
    cursor = node.get("cursor")
    return Loop(
        iterator=str(node.mapping["iterator"].value),
        collection=_value(node, "in"),
        cursor=None if cursor is None else Cursor(**cursor.plain()),
        **{key: spec[key] for key in ("mode", "max_in_flight") if key in spec},
        frame=FramePolicy(**{key: frame[key] for key in _FRAME_FIELDS if key in frame}),
        fanout=Fanout(**spec.get("fanout", {})),
        exec=spec.get("policy", {}).get("exec"),
    )


def _items(node: Node, key: str) -> list[Node]:
    found = node.get(key)
    return [] if found is None else found.items


def _plain(node: Node, *path: str) -> dict[str, Any]:
    found = node.get(*path)
    value: dict[str, Any] = {} if found is None else found.plain()
    return value


def _value(node: Node, *path: str, default: Any = None) -> Any:
    found = node.get(*path)
    return default if found is None else found.plain()


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
