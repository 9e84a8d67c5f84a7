"""What must hold within one job: operator and runtime, what starts it, how it updates, what it may be told."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from noetl.language.dag.alert_conditions import CONDITION, hold_condition
from noetl.language.dag.operators import OPERATORS, SHORTHANDS
from noetl.language.dag.times import schedule_problem, zone_problem
from noetl.language.dag.written_job import WrittenJob, origin_of
from noetl.language.grammar.problems import Problems, suggest
from noetl.language.grammar.tree import Node

_REACTIVE_ONLY: Final = ("execution_strategy", "wait", "idle_timeout")
_SOURCE_ONLY: Final = ("source", "bootstrap")
_FIELDS_OF_SOURCES: Final = (
    ("schedule", "cron"),
    ("timezone", "cron"),
    ("catch_up", "cron"),
    ("webhook_path", "webhook"),
    ("secret", "webhook"),
    ("signature", "webhook"),
    ("every", "always_on"),
)
_NEEDED_OF_SOURCES: Final = ("schedule", "webhook_path")
_READERS: Final = ("alert_route", "quality_check", "range_aggregator", "range_splitter")
"""Operators that do nothing without something to read."""


class JobRules:
    """Holds jobs to their rules; `operators` are further ones they may use, any if it is None."""

    def __init__(self, problems: Problems, operators: Collection[str] | None) -> None:
        self._problems = problems
        self._operators = operators

    def hold(self, job: WrittenJob) -> None:
        """Note what breaks a rule."""
        self._operator(job)
        self._udf(job)
        self._start(job)
        self._source(job)
        self._update(job)
        self._where(job)

    def _operator(self, job: WrittenJob) -> None:
        name, node = job.operator, job.node.get("operator")
        hint: str | None
        if name is None:
            if node is None:
                hint = "give sql, file, function, script or playbook, or name an operator"
                self._error("missing_field", f"the job {job.name} does not say what it does", job.node, hint)
            return
        known = OPERATORS.get(name)
        runtime = job.node.get("runtime")
        if known is None:
            # A function behind the invoke port is not part of this installation, so its name says nothing here.
            if self._operators is not None and name not in self._operators and job.runtime != "lambda":
                hint = suggest(name, {*OPERATORS, *self._operators})
                self._error("unknown_operator", f"there is no operator {name}", node or job.node, hint)
            elif runtime is None:
                said = f"the job {job.name} needs a runtime, since {name} is no operator of NoETL's own"
                self._error("missing_field", said, job.node, "write runtime: spark, dispatcher or ecs_platform")
            elif runtime.text == "lambda":
                self._config(job, "invoke")
            return
        if runtime is not None and runtime.text is not None and runtime.text not in known.runtimes:
            hint = f"write {' or '.join(known.runtimes)}, or leave it out"
            self._error("wrong_runtime", f"{name} does not run on {runtime.text}", runtime, hint)
        self._config(job, name)
        self._numbers(job, name)
        if name == "alert_evaluate":
            self._alert(job)

    def _config(self, job: WrittenJob, name: str) -> None:
        config = job.node.get("config") or Node({}, job.node.place)
        for group in OPERATORS[name].needs:
            given = [key for key in group if key in config.mapping]
            if not given:
                hint = f"write {' or '.join(f'{key}: …' for key in group)}"
                self._error("missing_field", f"{name} needs {' or '.join(group)}", job.node, hint)
            for key in given[1:]:
                said = f"the job {job.name} has both {given[0]} and {key}"
                self._problems.error("given_twice", said, config.key_place(key), "leave one of them out")
        for key, owner in SHORTHANDS.items():
            if key in config.mapping and owner != name and key not in OPERATORS[name].config:
                said = f"{key} is for {owner}, and the job {job.name} is {name}"
                self._problems.error("misplaced_field", said, config.key_place(key), "remove one of them")

    def _numbers(self, job: WrittenJob, name: str) -> None:
        outputs = job.node.get("outputs")
        if name == "spark_sql" and outputs is not None and outputs.value not in (1, None):
            self._error("wrong_value", "one SELECT has one output", outputs, "write outputs: 1, or use a function")
        if OPERATORS[name].one_input and len(job.items("inputs")) != 1:
            place = job.node.get("inputs") or job.node
            self._error("wrong_value", f"{name} takes one input", place, "write inputs: [NAME]")
        if name in _READERS and "inputs" not in job.node.mapping:
            self._error("missing_field", f"{name} needs inputs", job.node, "write inputs: [NAME]")

    def _alert(self, job: WrittenJob) -> None:
        config = job.node.get("config") or Node({}, job.node.place)
        hold_condition(config, f"the job {job.name}", self._problems)
        for key in config.mapping:
            if key in CONDITION and "on" not in config.mapping:
                said = f"{key} is for a condition over the ledger"
                self._problems.error("misplaced_field", said, config.key_place(key), "write on: …, or remove it")
        if "sql" in config.mapping and "inputs" not in job.node.mapping:
            self._error("missing_field", "alert_evaluate with sql needs inputs", job.node, "write inputs: [NAME]")

    def _udf(self, job: WrittenJob) -> None:
        udf, runtime, secrets = job.node.get("udf"), job.node.get("runtime"), job.node.get("secrets")
        if udf is None:
            if job.runtime == "ecs_udf":
                place = runtime or job.node
                self._error("missing_field", "user code needs udf", place, "write udf: {entrypoint: FILE}")
            return
        if runtime is not None and runtime.text not in ("ecs_udf", None):
            said = f"user code runs on ecs_udf, not on {runtime.text}"
            self._error("wrong_runtime", said, runtime, "write runtime: ecs_udf, or leave it out")
        if job.operator in OPERATORS and job.operator != "udf":
            said = f"udf is not for {job.operator}"
            self._problems.error("misplaced_field", said, job.node.key_place("udf"), "write operator: udf")
        if secrets is not None:
            hint = "remove them; fetch what needs a secret in a job of its own"
            self._problems.error("secrets_forbidden", "user code gets no secrets", job.node.key_place("secrets"), hint)

    def _start(self, job: WrittenJob) -> None:
        given, inputs = job.node.get("activation"), job.node.get("inputs")
        if given is not None and given.text == "source" and inputs is not None:
            self._only_read(job, given)
        if given is not None and given.text == "reactive" and inputs is None:
            self._error("missing_field", "a reactive job needs inputs", given, "write inputs: [NAME]")
        kind, wrong = ("source", _REACTIVE_ONLY) if job.is_source else ("reactive", _SOURCE_ONLY)
        for key in wrong:
            if key in job.node.mapping:
                other = "jobs with inputs" if job.is_source else "jobs without inputs"
                said = f"{key} is for {other}, and {job.name} is a {kind} job"
                self._problems.error("misplaced_field", said, job.node.key_place(key), "remove it")
        triggers = [one.get("trigger") for one in job.inputs]
        if (
            not job.is_source
            and triggers
            and all(one is not None and one.value is False for one in triggers)
            and inputs is not None
        ):
            hint = "leave trigger out of the input whose changes matter, or write activation: source"
            self._error("never_started", f"no input starts the job {job.name}", inputs, hint)

    def _only_read(self, job: WrittenJob, given: Node) -> None:
        """A source may look things up, but what it reads must stand before its DAG is built, and cannot start it."""
        for one in job.inputs:
            origin, trigger = origin_of(one), one.get("trigger")
            if origin is not None and origin.job is not None:
                said = f"a source cannot read {origin.job}, a job of its own DAG"
                self._error("wrong_value", said, given, "remove activation, or read a published dataset")
            if trigger is not None and trigger.value is True:
                self._error("wrong_value", "no input starts a source", trigger, "write trigger: false, or leave it out")

    def _source(self, job: WrittenJob) -> None:
        source = job.node.get("source")
        if source is None:
            return
        kind = job.text("source", "kind")
        for key, owner in _FIELDS_OF_SOURCES:
            given = source.get(key)
            if kind == owner and given is None and key in _NEEDED_OF_SOURCES:
                self._error("missing_field", f"a {owner} source needs {key}", source, f"write {key}: …")
            elif kind is not None and kind != owner and given is not None:
                said = f"{key} is for kind: {owner}"
                self._problems.error("misplaced_field", said, source.key_place(key), "remove it")
            elif key == "schedule" and given is not None and given.text and (wrong := schedule_problem(given.text)):
                self._error("wrong_value", wrong, given, None)
            elif key == "timezone" and given is not None and given.text:
                wrong = zone_problem(given.text, job.text("source", "schedule"))
                if wrong is not None:
                    self._error("wrong_value", wrong, given, None)

    def _update(self, job: WrittenJob) -> None:
        strategy, key = job.node.get("update_strategy"), job.node.get("unique_key")
        given = None if strategy is None else strategy.text
        if strategy is not None and given == "append" and not (key and key.items):
            hint = "write unique_key: [COLUMN], by which a row that comes again is known"
            self._error("missing_field", "append needs unique_key", strategy, hint)
        if key is not None and given == "replace":
            place = job.node.key_place("unique_key")
            self._problems.error("misplaced_field", "unique_key is for append", place, "remove it")

    def _where(self, job: WrittenJob) -> None:
        for one in job.inputs:
            where = one.get("where")
            if where is not None and job.operator == "quality_check":
                hint = "check what the input's own job writes, or filter in a job between them"
                self._error("misplaced_field", "quality_check looks at whole partitions", where, hint)
            for column, value in {} if where is None else where.mapping.items():
                if any(isinstance(inner.value, dict | list) for inner in (value.items or [value])):
                    said = f"where.{column} must be a value or a list of values"
                    self._error("wrong_value", said, value, "a mapping cannot be compared")

    def _error(self, code: str, message: str, node: Node, hint: str | None) -> None:
        self._problems.error(code, message, node.place, hint)
