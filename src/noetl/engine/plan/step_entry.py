"""How a step is entered: admitted or not, as a command, as a loop's stage, suspended on a child, or passed at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.engine.plan.fact import Fact, recorded, refuse_unrecordable
from noetl.engine.plan.limits import DEPTH_LIMIT, depth_below
from noetl.engine.plan.locality import fullest
from noetl.engine.plan.planned import PlannedLoop
from noetl.engine.plan.step_exit import leave
from noetl.engine.plan.template_names import COUNTS, state_names
from noetl.engine.plan.trigger import CommandEnded, Tally
from noetl.errors import ChildTooDeep, NoetlError, TemplateFailed
from noetl.language.templates.template import holds

if TYPE_CHECKING:
    from noetl.engine.plan.decide import Deciding

ROWS_PER_FRAME = 100
"""Where the playbook names no size: enough that two events per frame cost next to nothing per row."""
CURSOR_ROWS_PER_FRAME = 50
SLOTS_MAX = 1_000
NO_TOOL = "none"
"""What is said of the command of a step whose templates failed: nobody works on it."""


class Entering:
    """One step being entered."""

    def __init__(self, deciding: Deciding, step: str, cause: dict[str, Any], *, final: bool) -> None:
        self._deciding = deciding
        self._step = step
        self._cause = cause
        self._final = final
        self._planned = deciding.plan.step(step)
        self._number = deciding.state.runs.get(step, 0) + 1
        self._near = self._inputs_near()

    def enter(self) -> None:
        """Say what becomes of the step; a step whose templates fail is entered and left as failed."""
        names = state_names(
            self._deciding.state,
            steps=self._deciding.plan.steps.keys(),
            asked=self._planned.names_on_entry,
            loaded=self._deciding.loaded,
        )
        try:
            refused = self._refused(names)
            if refused is not None:
                self._say("step.skipped", status="skipped", error=None, reason=refused)
                return
            if self._planned.loop is not None:
                self._enter_loop(self._planned.loop, names)
            elif self._planned.child is not None:
                self._enter_child(self._planned.child.render(names))
            else:
                self._enter_command()
        except NoetlError as problem:
            self._enter_in_vain(problem)

    def _refused(self, names: Mapping[str, Any]) -> str | None:
        for number, (when, allow) in enumerate(self._planned.admit):
            if when is None or holds(when.render(names), "admit"):
                return None if holds(allow.render(names), "admit") else f"admission rule {number} does not allow it"
        return None

    def _inputs_near(self) -> dict[str, Any] | None:
        """Return the node that holds most of what the steps before this one came to, as far as that is outside events."""
        state = self._deciding.state
        if not state.near:
            return None
        sources = [arrival.source or "" for arrival in state.waiting if arrival.step == self._step]
        found = fullest(state.near[source] for source in dict.fromkeys(sources) if source in state.near)
        return None if found is None else msgspec.to_builtins(found[0])

    def _say(self, kind: str, **fields: Any) -> None:
        meta: dict[str, Any] = {"run": self._number, "cause": self._cause}
        if self._final:
            meta["final"] = True
        if reason := fields.pop("reason", None):
            meta["reason"] = reason
        if loop := fields.pop("loop", None):
            meta["loop"] = loop
        self._deciding.say(Fact(event_type=kind, node_name=self._step, meta=meta, **fields))

    def _command(self, slot: int = 0) -> str:
        return f"{self._step}/{self._number}/{slot}"

    def _issue(self, slot: int = 0, lease_seconds: float | None = None, **fields: Any) -> None:
        meta = {
            "tool_kind": fields.pop("tool_kind", self._planned.tool_kind),
            "lease_seconds": lease_seconds or self._deciding.command_lease_seconds,
        }
        meta |= fields.pop("meta", {})
        if not self._planned.is_work or meta["tool_kind"] == NO_TOOL:
            meta["idle"] = True
        if self._near is not None and "child_execution_id" not in meta:
            meta["near"] = self._near
        self._deciding.say(
            Fact(event_type="command.issued", node_name=self._step, command_id=self._command(slot), meta=meta, **fields)
        )

    def _enter_command(self) -> None:
        stage_id = None
        if self._deciding.plan.graph.is_reduce(self._step) and len(self._deciding.state.runs) > 1:
            stage_id = self._reduce_stage()
        self._say("step.entered", stage_id=stage_id)
        if self._planned.is_idle and self._deciding.may_pass():
            leave(self._deciding, self._step, CommandEnded(command_id="", attempt=1, status="ok"))
            return
        self._issue(stage_id=stage_id)

    def _reduce_stage(self) -> int | None:
        """Open a stage where several branches came together; a step reached by one way alone is a plain step."""
        sources = {arrival.source for arrival in self._deciding.state.waiting if arrival.step == self._step}
        if len(sources) < 2:
            return None
        stage_id = self._deciding.mint()
        self._deciding.say(
            Fact(
                event_type="stage.opened",
                at="stage",
                node_name=self._step,
                stage_id=stage_id,
                meta={"kind": "reduce", "dsl_ref": f"{self._deciding.state.path}#{self._step}"},
                context={"frame_policy": {}, "sources": sorted(filter(None, sources))},
            )
        )
        return stage_id

    def _enter_child(self, rendered: dict[str, Any]) -> None:
        options, given = rendered["options"], rendered["input"]
        path = options.get("path") or options.get("catalog_id")
        if not isinstance(path, str) or not path:
            raise TemplateFailed(f"{self._planned.where}: the sub-playbook needs a path")
        depth_below(self._deciding.state.depth, self._deciding.max_child_depth, path)
        over = options.get("payload") or {}
        if not isinstance(over, Mapping):
            raise TemplateFailed(
                f"{self._planned.where}, field payload: a mapping is needed, and this is {type(over).__name__}"
            )
        payload = recorded({**given, **over}, f"{self._planned.where}, field payload")
        waits = any(options.get(name) for name in ("return_step", "result_step", "return_result")) or (
            options.get("wait", True) is not False
        )
        child = self._deciding.mint()
        context = {
            "child": {
                "path": path,
                "version": options.get("version"),
                "payload": payload,
                "return_step": options.get("return_step") or options.get("result_step"),
                "waits": waits,
            }
        }
        self._say("step.entered")
        self._issue(meta={"child_execution_id": str(child)}, context=context)

    def _enter_loop(self, loop: PlannedLoop, names: Mapping[str, Any]) -> None:
        mode = loop.source.mode
        rows = (
            None if mode == "cursor" else _rows(loop.collection.render(names), f"{self._planned.where}, field loop.in")
        )
        total = None if rows is None else len(rows)
        lanes = (
            1
            if mode == "sequential"
            else _whole(loop.max_in_flight.render(names), "max_in_flight", self._planned.where)
        )
        policy = self._policy(loop, loop.frame.render(names), total, lanes)
        frames = None if total is None else -(-total // policy["max_rows"])
        slots = min(lanes if frames is None else min(lanes, frames), SLOTS_MAX)
        if loop.on_spark:
            policy |= {"runtime": "spark", "lanes": slots}
        loop_id, stage_id = self._deciding.mint(), self._deciding.mint()
        facts = {"mode": mode, "total": total, "slots": slots, "frame": policy}
        ids: dict[str, Any] = {"loop_id": loop_id, "stage_id": stage_id if slots else None}
        self._say("step.entered", loop=facts, rows=rows or None, **ids)
        started = (
            Fact(
                event_type="loop.fanout.started",
                at="loop",
                node_name=self._step,
                loop_id=loop_id,
                status="started",
                meta={"total_shards": total},
            )
            if mode == "fanout"
            else Fact(
                event_type="loop.started",
                at="loop",
                node_name=self._step,
                loop_id=loop_id,
                status="started",
                meta={"collection_size": total, "mode": mode},
                rows=rows or None,
            )
        )
        self._deciding.say(started)
        if not slots:
            leave(self._deciding, self._step, CommandEnded(command_id="", attempt=1, status="ok", tally=Tally()))
            return
        self._deciding.say(
            Fact(
                event_type="stage.opened",
                at="stage",
                node_name=self._step,
                stage_id=stage_id,
                loop_id=loop_id,
                meta={
                    "kind": "fanout" if mode == "fanout" else "loop",
                    "dsl_ref": f"{self._deciding.state.path}#{self._step}",
                    "total_rows": total,
                },
                context={"frame_policy": policy},
            )
        )
        # On Spark one command starts a job whose parts work frames off as slots do.
        for slot in range(1 if loop.on_spark else slots):
            self._issue(slot, lease_seconds=policy["lease_seconds"], stage_id=stage_id, loop_id=loop_id)

    def _policy(self, loop: PlannedLoop, given: dict[str, Any], total: int | None, lanes: int) -> dict[str, Any]:
        mode, where = loop.source.mode, self._planned.where
        most = given.get("max_rows")
        if mode == "fanout":
            rows = 1
        elif most is not None:
            rows = _whole(most, "frame.max_rows", where)
        elif total is None:
            rows = loop.most_rows or CURSOR_ROWS_PER_FRAME
        else:
            bound = loop.most_rows or ROWS_PER_FRAME
            rows = max(1, min(bound, -(-total // (lanes * 4)) if lanes > 1 else bound))
        return {
            "max_rows": rows,
            "max_seconds": _number(given["max_seconds"], "frame.max_seconds", where),
            "max_bytes": _whole(given["max_bytes"], "frame.max_bytes", where),
            "lease_seconds": _number(given["lease_seconds"], "frame.lease_seconds", where),
            "heartbeat_seconds": _number(given["heartbeat_seconds"], "frame.heartbeat_seconds", where),
            "row_concurrency": _whole(given["row_concurrency"], "frame.row_concurrency", where),
            "process": given["process"],
            "commit": given["commit"],
            "retry_mode": given["retry_mode"],
            "max_attempts": self._attempts(given["max_attempts"], mode),
            "fail_fast": mode == "fanout" and self._fails_fast(),
            **({"verify_ipc": True} if given["verify_ipc"] else {}),
        }

    def _fails_fast(self) -> bool:
        loop = self._planned.source.loop
        return loop is not None and loop.fanout.fail_fast

    def _attempts(self, given: Any, mode: str) -> int:
        loop = self._planned.source.loop
        if mode == "fanout" and loop is not None:
            return loop.fanout.max_shard_retries + 1
        return _whole(given, "frame.max_attempts", self._planned.where)

    def _enter_in_vain(self, problem: NoetlError) -> None:
        """A step whose templates fail, or whose child may not be started, has still been entered: it fails like any other."""
        if self._step not in self._deciding.state.active:
            self._say("step.entered")
        self._issue(tool_kind=NO_TOOL, meta={"attempt": 0})
        command_id = self._command()
        kind = DEPTH_LIMIT if isinstance(problem, ChildTooDeep) else "transform"
        error = {"kind": kind, "code": problem.code, "message": problem.message, "retryable": False}
        self._deciding.say(
            Fact(
                event_type="command.failed",
                node_name=self._step,
                command_id=command_id,
                status="failed",
                error=problem.message,
                result={"status": "error", "error": error},
                key=f"{command_id}/ended/0",
            )
        )
        leave(
            self._deciding,
            self._step,
            CommandEnded(command_id=command_id, attempt=0, status="error", error=error),
        )


def _rows(value: Any, where: str) -> list[Any]:
    if isinstance(value, Mapping):
        value = _listed(value)
    if isinstance(value, str) and value.strip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError as problem:
            raise TemplateFailed(f"{where}: the text is no JSON list: {problem}") from problem
    if isinstance(value, tuple | range):
        value = list(value)
    if not isinstance(value, list):
        raise TemplateFailed(f"{where}: a list is needed, and this is {type(value).__name__}")
    refuse_unrecordable(value, where)
    return value


def _listed(value: Mapping[str, Any]) -> Any:
    """Return the list that a whole result stands for: the one a step gave as `data`, or what the rows of a loop came to."""
    if value.keys() - {"stats"} == COUNTS | {"results"}:
        return value["results"]
    data = value.get("data")
    return data if isinstance(data, list) else value


def _whole(value: Any, field: str, where: str) -> int:
    number = _number(value, field, where)
    if number != int(number) or number < 1:
        raise TemplateFailed(f"{where}, field loop.spec.{field}: {value!r} is no whole number from 1")
    return int(number)


def _number(value: Any, field: str, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TemplateFailed(f"{where}, field loop.spec.{field}: {value!r} is no number") from None
    if not 0 < number < 1e12:
        raise TemplateFailed(f"{where}, field loop.spec.{field}: {value!r} is not above 0")
    return number
