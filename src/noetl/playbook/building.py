"""Makes the values of a playbook from a tree that fits the grammar. Nothing is checked here any more."""

from __future__ import annotations

from typing import Any

from noetl.playbook.building_tasks import duration, origins_of, task_from
from noetl.playbook.model import (
    Admission,
    Arc,
    Cursor,
    Fanout,
    FramePolicy,
    KeychainEntry,
    Limits,
    Loop,
    Playbook,
    Router,
    Step,
    Task,
)
from noetl.playbook.tree import Node

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
