"""Writes shorthands out: a tree as people write it goes in, one with a single spelling for everything comes out.

Everything keeps the place where it was written. Parts of a wrong shape are left alone: the tables tell about them.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from noetl.dag.grammar import DATASET, REFERENCE
from noetl.dag.operators import SHORTHANDS
from noetl.playbook.model import Place
from noetl.playbook.problems import Problems, nearest
from noetl.playbook.tree import Node

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
