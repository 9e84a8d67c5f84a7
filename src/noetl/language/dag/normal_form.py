"""Brings a DAG's tree into normal form: shorthands are expanded, and reserved fields are reported and removed.

Everything keeps the place where it was written. Parts of a wrong shape are left alone: the matcher reports them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from noetl.language.dag.grammar_parts import DATASET, REFERENCE
from noetl.language.dag.operators import SHORTHANDS
from noetl.language.grammar.problems import Problems, nearest
from noetl.language.grammar.tree import Node
from noetl.language.playbook.model import Place

_NOT_NULL = re.compile(r"(.*\S)\s+not\s+null\s*", re.IGNORECASE | re.DOTALL)


def written_out(root: Node, problems: Problems) -> Node:
    """Return the document with every shorthand written out."""
    return _Writer(root, problems).document()


class _Writer:
    def __init__(self, root: Node, problems: Problems) -> None:
        self._root = root
        self._problems = problems
        jobs = root.get("jobs")
        self._jobs = [] if jobs is None else jobs.items
        self._names = [name.text for job in self._jobs if (name := job.get("name")) is not None and name.text]
        self._published: dict[str, Node] = {}

    def document(self) -> Node:
        root = self._root
        publish = root.get("publish")
        if publish is not None:
            publish = self._publish(publish)
            self._published = {name: found for name, one in publish.mapping.items() if (found := one.get("from"))}
            root = root.with_entry("publish", publish, root.key_place("publish"))
        jobs = root.get("jobs")
        if jobs is None:
            return root
        return root.with_entry("jobs", Node([self._job(job) for job in self._jobs], jobs.place), root.key_place("jobs"))

    def _publish(self, publish: Node) -> Node:
        if isinstance(publish.value, list):
            named = [(one.text, one, one.place) for one in publish.items if one.text is not None]
            seen: set[str] = set()
            for name, _, place in named:
                if name in seen:
                    self._problems.error("duplicate_name", f"{name} is published already", place, "remove one of them")
                seen.add(name)
        else:
            named = [(name, one, publish.key_place(name)) for name, one in publish.mapping.items()]
        written = {name: _entry("from", self._origin(one.get("from") or one, published=True)) for name, one, _ in named}
        return Node(written, publish.place, {name: place for name, _, place in named})

    def _job(self, job: Node) -> Node:
        if not isinstance(job.value, dict):
            return job
        job = self._config(job)
        inputs = job.get("inputs")
        if inputs is not None:
            job = job.with_entry("inputs", self._inputs(inputs))
        for key in ("partition_by", "unique_key"):
            job = _listed(job, key)
        checks = job.get("checks")
        if checks is not None:
            checks = Node([_listed(check, "columns") for check in checks.items], checks.place)
            job = job.with_entry("checks", checks)
        columns = job.get("schema", "columns")
        if columns is not None and isinstance(columns.value, dict):
            job = job.with_entry("schema", job.mapping["schema"].with_entry("columns", _columns(columns)))
        return job

    def _config(self, job: Node) -> Node:
        config = job.get("config") or Node({}, job.place)
        operator = job.get("operator")
        moved = [*SHORTHANDS, *(["checks"] if operator is not None and operator.text == "quality_check" else [])]
        for key in moved:
            given = job.get(key)
            if given is None:
                continue
            if key in config.mapping:
                said = f"{key} stands on the job and in its config"
                self._problems.error("given_twice", said, job.key_place(key), "leave one of them out")
            config = config.with_entry(key, given, job.key_place(key))
        checks = config.get("checks")
        if checks is not None and isinstance(checks.value, list):
            config = config.with_entry("checks", Node([_listed(one, "columns") for one in checks.items], checks.place))
        job = job.without(*moved)
        return job.with_entry("config", config, job.key_place("config")) if config.mapping else job

    def _inputs(self, inputs: Node) -> Node:
        pairs: list[tuple[Node | None, Node]]
        if isinstance(inputs.value, dict):
            pairs = [(Node(alias, inputs.key_place(alias)), one) for alias, one in inputs.mapping.items()]
        else:
            pairs = [(one.get("alias"), one) for one in inputs.items]
        return Node([self._input(alias, one) for alias, one in pairs], inputs.place)

    def _input(self, alias: Node | None, one: Node) -> Node:
        written = one if isinstance(one.value, dict) else _entry("from", one)
        origin = written.get("from")
        if origin is None:
            return written
        origin = self._origin(origin)
        name = alias or origin.get("dataset") or origin.get("job")
        dataset = origin.get("dataset")
        if dataset is not None and dataset.text in self._published:
            # What this DAG publishes is read from the job itself, so that the order of jobs stays true.
            origin = self._published[dataset.text]
        written = written.with_entry("from", origin)
        return written if name is None else written.with_entry("alias", name)

    def _origin(self, origin: Node, *, published: bool = False) -> Node:
        """Return `from` as a mapping; a bare name is a job of this DAG if there is one."""
        if origin.text is None or not re.fullmatch(str(REFERENCE.pattern), origin.text):
            return origin
        name, dot, output = origin.text.partition(".")
        place = origin.place
        if dot or published or name in self._names or not re.fullmatch(str(DATASET.pattern), name):
            return _entry("job", Node(name, place)).with_entry("output", Node(int(output or 0), place))
        self._maybe_misspelt(name, place, self._names)
        return _entry("dataset", Node(name, place))

    def _maybe_misspelt(self, name: str, place: Place, known: Collection[str]) -> None:
        close = None if name in self._published else nearest(name, known)
        if close is not None:
            said = f"no job is called {name}, so it is read as a published dataset"
            hint = f"did you mean {close}? write from: {{dataset: {name}}} if not"
            self._problems.warning("likely_misspelt", said, place, hint)


def _entry(key: str, node: Node) -> Node:
    return Node({key: node}, node.place, {key: node.place})


def _listed(holder: Node, key: str) -> Node:
    node = holder.get(key)
    return holder if node is None or node.text is None else holder.with_entry(key, Node([node], node.place))


def _columns(columns: Node) -> Node:
    """Return columns that were written as a map of types as a list; `bigint not null` is one that is never null."""
    items = []
    for name, kind in columns.mapping.items():
        at = columns.key_place(name)
        required = None if kind.text is None else _NOT_NULL.fullmatch(kind.text)
        item = _entry("name", Node(name, at)).with_entry("type", kind)
        if required is not None:
            item = item.with_entry("type", Node(required[1], kind.place))
            item = item.with_entry("nullable", Node(value=False, place=kind.place))
        items.append(item)
    return Node(items, columns.place)


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
