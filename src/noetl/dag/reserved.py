"""Fields that are kept for later: a tree goes in, it comes out without them, and each is told about in one sentence."""

from __future__ import annotations

from typing import Final

from noetl.playbook.problems import Problems
from noetl.playbook.tree import Node

_QUEUES: Final = ("max_queue_depth", "max_queue_age", "backpressure_mode")
_PUBLISHED: Final = ("storage", "write_mode", "schema")
_LIMIT: Final = "remove it; scaling.max_concurrency bounds how many tasks run at once"


def without_reserved(root: Node, problems: Problems) -> Node:
    """Note every reserved field and leave it out."""
    root = _dropped(root, _QUEUES, _LIMIT, problems)
    defaults = root.get("defaults")
    if defaults is not None:
        defaults = _dropped(defaults, (*_QUEUES, "priority"), "remove it", problems)
        root = root.with_entry("defaults", defaults, root.key_place("defaults"))
    jobs = root.get("jobs")
    if jobs is not None and isinstance(jobs.value, list):
        kept = Node([_job(job, problems) for job in jobs.items], jobs.place)
        root = root.with_entry("jobs", kept, root.key_place("jobs"))
    publish = root.get("publish")
    if publish is not None and isinstance(publish.value, dict):
        hint = "remove it: a published dataset is the job's output as it is"
        for name, entry in publish.mapping.items():
            publish = publish.with_entry(name, _dropped(entry, _PUBLISHED, hint, problems), publish.key_place(name))
        root = root.with_entry("publish", publish, root.key_place("publish"))
    return root


def _job(job: Node, problems: Problems) -> Node:
    job = _dropped(job, _QUEUES, _LIMIT, problems)
    scaling = job.get("scaling")
    if scaling is not None:
        job = job.with_entry("scaling", _dropped(scaling, _QUEUES, _LIMIT, problems), job.key_place("scaling"))
    activation = job.get("activation")
    if activation is not None and activation.value == "manual":
        hint = "write source: {kind: manual} for a job that is started by hand"
        problems.error("reserved_field", "activation: manual is reserved for later", activation.place, hint)
        return job.without("activation")
    return job


def _dropped(node: Node, keys: tuple[str, ...], hint: str, problems: Problems) -> Node:
    found = [key for key in keys if key in node.mapping]
    for key in found:
        problems.error("reserved_field", f"{key} is reserved for later", node.key_place(key), hint)
    return node.without(*found) if found else node
