"""Reads a DAG: its text goes in, the DAG and its warnings come out, or `DagInvalid` with every problem at once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from noetl.errors import InputError
from noetl.language.dag.builder import dag_from
from noetl.language.dag.grammar import DAG
from noetl.language.dag.model import Dag
from noetl.language.dag.normal_form import without_reserved, written_out
from noetl.language.dag.operators import OPERATORS
from noetl.language.dag.python_files import Files
from noetl.language.dag.rules.columns import ColumnRules
from noetl.language.dag.rules.files import FileRules
from noetl.language.dag.rules.graph import hold_graph
from noetl.language.dag.rules.jobs import JobRules
from noetl.language.dag.rules.sources import hold_sources
from noetl.language.dag.written_job import WrittenJob, written_jobs
from noetl.language.grammar.matcher import Matcher
from noetl.language.grammar.problems import Problem, Problems
from noetl.language.grammar.tree import Node
from noetl.language.grammar.yaml_reader import read
from noetl.language.playbook.model import Place
from noetl.model.canonical import canonical_json


class DagInvalid(InputError):
    """The DAG has problems."""

    code = "dag_invalid"


@dataclass(frozen=True, slots=True)
class ParsedDag:
    """A DAG that was read, with what to look at in it and where everything stands."""

    dag: Dag
    warnings: list[Problem]
    file: str | None
    tree: Node
    """The document with every shorthand written out, and the places of what was written."""
    digest: str
    """Digest of the document's values: order of keys, comments and layout do not matter."""
    job_files: dict[str, tuple[str, ...]]
    """The files each job needs: those it names, and those its Python imports, sorted."""

    def place(self, *path: str | int) -> Place:
        """Return where something stands: `place("jobs", "clean", "config", "sql")`, or the nearest thing around it."""
        return self.tree.place_at(*path)


def parse(
    text: str,
    *,
    file: str | None = None,
    files: Mapping[str, bytes] | Files | None = None,
    operators: Collection[str] | None = (),
) -> ParsedDag:
    """Read a DAG. `files` gives what lies beside it, for looking at SQL and Python.

    `operators` are those it may use besides NoETL's own; None lets it use any.
    """
    problems = Problems(file)
    document = read(text, problems, "DAG")
    if document is None:
        raise refusal(problems.in_order())
    root = without_reserved(document, problems)
    Matcher(problems).match(root, DAG, "")
    tree = written_out(root, problems)
    jobs = list(written_jobs(tree))
    _match_configs(root, jobs, problems)
    beside = FileRules(problems, file, files.get if isinstance(files, Mapping) else files)
    rules = JobRules(problems, operators)
    for job in jobs:
        rules.hold(job)
        ColumnRules(problems, job, beside.hold(job)).hold()
    hold_sources(jobs, problems)
    hold_graph(tree, jobs, problems)
    found = [*problems.in_order(), *beside.elsewhere()]
    if any(problem.severity == "error" for problem in found):
        raise refusal(found)
    digest = hashlib.sha256(canonical_json(document.plain())).hexdigest()
    return ParsedDag(dag_from(tree, jobs, beside.named), found, file, tree, digest, beside.needed)


def problems_of(
    text: str,
    *,
    file: str | None = None,
    files: Mapping[str, bytes] | Files | None = None,
    operators: Collection[str] | None = (),
) -> list[Problem]:
    """Return everything that is to be said about a DAG's text."""
    try:
        return parse(text, file=file, files=files, operators=operators).warnings
    except DagInvalid as error:
        found: list[Problem] = error.details["problems"]  # type: ignore[assignment]
        return found


def is_dag(text: str) -> bool:
    """Tell whether a file is a DAG and no playbook: by its kind, else because it has jobs."""
    root = read(text, Problems())
    if root is None:
        return re.search(r"^jobs:", text, re.MULTILINE) is not None
    kind = root.get("kind")
    return kind.text == "DAG" if kind is not None and kind.text in ("DAG", "Playbook") else "jobs" in root.mapping


def refusal(problems: list[Problem]) -> DagInvalid:
    """Make the error that carries all problems of a DAG."""
    return DagInvalid("\n".join(map(str, problems)), problems=problems)


def _match_configs(root: Node, jobs: list[WrittenJob], problems: Problems) -> None:
    """Hold what was written under `config` against the operator's fields; shorthands were held already."""
    written = root.get("jobs")
    for job in jobs:
        config = None if written is None else written.items[job.index].get("config")
        known = OPERATORS.get(job.operator or "")
        if known is not None and config is not None and isinstance(config.value, dict):
            Matcher(problems).match(config, known.record(str(job.operator)), f"jobs[{job.name}].config")
