"""A job in normal form: a job of the tree goes in, its properties come out, with defaults filled in.

Nothing here reports problems; a property that cannot be determined is None.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from noetl.language.dag.operators import OPERATORS, SHORTHANDS, Operator
from noetl.language.grammar.tree import Node


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an input or a published dataset comes from, with the place that says so."""

    node: Node
    job: str | None
    dataset: str | None
    output: int


@dataclass(frozen=True, slots=True)
class WrittenJob:
    """A job as it was written out."""

    node: Node
    index: int

    @property
    def name(self) -> str:
        """Its name, or its number if it has none."""
        return self.text("name") or f"number {self.index + 1}"

    @property
    def operator(self) -> str | None:
        """What it does: as given, else as one of its fields tells."""
        given = self.node.get("operator")
        if given is not None:
            return given.text
        if self.text("runtime") == "lambda":
            return "invoke"
        told = (SHORTHANDS[key] for key in SHORTHANDS if self.node.get("config", key) is not None)
        sent = "webhook" if self.text("source", "kind") == "webhook" else None
        return next(told, "udf" if self.node.get("udf") is not None else sent)

    @property
    def known(self) -> Operator | None:
        """Its operator, if that is one of NoETL's own."""
        return OPERATORS.get(self.operator or "")

    @property
    def runtime(self) -> str | None:
        """Where it runs: as given, else where its operator runs by itself."""
        given = self.node.get("runtime")
        if given is not None:
            return given.text
        if self.node.get("udf") is not None:
            return "ecs_udf"
        return None if self.known is None else self.known.runtime

    @property
    def is_source(self) -> bool:
        """Whether it is started by something else than its inputs."""
        return (self.text("activation") or ("reactive" if "inputs" in self.node.mapping else "source")) == "source"

    @property
    def appends(self) -> bool:
        """Whether its rows come to those that stand already."""
        given = self.text("update_strategy")
        return given == "append" if given is not None else bool(self.columns("unique_key"))

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns its output is partitioned by: as given, else as its operator has it."""
        if "partition_by" in self.node.mapping or self.known is None:
            return tuple(str(one.text) for one in self.columns("partition_by"))
        return self.known.partition_by

    @property
    def outputs(self) -> int:
        """How many outputs it has."""
        given = self.node.get("outputs")
        if given is not None and isinstance(given.value, int):
            return given.value
        return 1 if self.known is None else self.known.outputs

    @property
    def tells_delivery(self) -> bool:
        """Whether its rows tell how they came."""
        given = self.node.get("config", "delivery")
        return self.operator == "webhook" and given is not None and given.value is True

    @property
    def inputs(self) -> list[Node]:
        """Its inputs, each a mapping."""
        return [one for one in self.items("inputs") if one.mapping]

    def text(self, *path: str) -> str | None:
        """Return the text under a path of keys."""
        node = self.node.get(*path)
        return None if node is None else node.text

    def items(self, *path: str) -> list[Node]:
        """Return the items of the list under a path of keys."""
        node = self.node.get(*path)
        return [] if node is None else node.items

    def columns(self, *path: str) -> list[Node]:
        """Return the texts of the list under a path of keys."""
        return [one for one in self.items(*path) if one.text is not None]


def written_jobs(root: Node) -> Iterator[WrittenJob]:
    """Walk over the jobs of a DAG that are mappings at all."""
    jobs = root.get("jobs")
    for index, node in enumerate([] if jobs is None else jobs.items):
        if isinstance(node.value, dict):
            yield WrittenJob(node, index)


def origin_of(holder: Node) -> Origin | None:
    """Return where an input or a published dataset comes from; None if it does not say so."""
    node = holder.get("from")
    if node is None or not isinstance(node.value, dict):
        return None
    job, dataset, output = node.get("job"), node.get("dataset"), node.get("output")
    return Origin(
        node,
        None if job is None else job.text,
        None if dataset is None else dataset.text,
        output.value if output is not None and type(output.value) is int else 0,
    )
