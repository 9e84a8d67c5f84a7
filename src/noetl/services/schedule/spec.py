"""What a schedule promises: when it is due, how it catches up, how long a run may take and how often it is tried."""

from __future__ import annotations

import re
import uuid
from typing import Any, Final, Literal

import msgspec

from noetl.errors import InputError
from noetl.model.stream import Scope, Stream
from noetl.services.schedule.cron import expression_problem

Kind = Literal["platform", "source", "playbook"]
Mode = Literal["latest_only", "every_plan"]
KINDS: Final[tuple[Kind, ...]] = ("platform", "source", "playbook")
PLATFORM: Final = Scope("platform", "platform")
"""Whose the schedules of the platform itself are."""

_NAMESPACE: Final = uuid.UUID("5f6b7d0e-9f0d-5d52-9a4f-6f5d1f0c3a21")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}")
_LONGEST: Final = 366 * 86_400.0


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """When a schedule is due and how its slots are run; times are seconds."""

    expression: str
    """Five or six cron fields, a name such as @daily, or a rate such as rate(5 minutes)."""
    timezone: str = "UTC"
    mode: Mode = "latest_only"
    """What becomes of moments that were missed: only the newest is run, or all of them, the oldest first."""
    delay_seconds: float = 0.0
    """How long after its moment a slot becomes due."""
    catch_up_seconds: float = 86_400.0
    """Moments that are longer ago than this are skipped, and slots that old are not tried again."""
    max_plans_per_tick: int = 10
    """How many missed moments are claimed at a time, for every_plan."""
    run_timeout_seconds: float = 120.0
    stale_timeout_seconds: float = 300.0
    """How long a lease lasts without a heartbeat."""
    heartbeat_seconds: float = 30.0
    max_attempts: int = 3
    retry_backoff: tuple[float, ...] = (60.0, 300.0, 900.0)
    """Waits before the next attempts, the last one again and again; none: a failed slot is not tried again."""
    allow_stale_reentry: bool = True
    """Whether a slot whose runner was lost may be run by another."""

    def problems(self) -> list[str]:
        """Say all that is wrong with it; empty when it is sound."""
        found = [expression_problem(self.expression, self.timezone)]
        found += [
            f"{name} must be a number of seconds from {least:g} to {_LONGEST:.0f}"
            for name, value, least in (
                ("delay", self.delay_seconds, 0.0),
                ("catch_up_window", self.catch_up_seconds, 1.0),
                ("run_timeout", self.run_timeout_seconds, 0.001),
                ("stale_timeout", self.stale_timeout_seconds, 0.001),
                ("heartbeat", self.heartbeat_seconds, 0.001),
                *(("retry_backoff", wait, 0.0) for wait in self.retry_backoff),
            )
            if not least <= value <= _LONGEST
        ]
        if self.stale_timeout_seconds <= self.run_timeout_seconds:
            found.append("stale_timeout must be longer than run_timeout, or a run that takes its time loses its lease")
        if self.heartbeat_seconds >= self.stale_timeout_seconds:
            found.append("heartbeat must be shorter than stale_timeout, or no lease is ever renewed in time")
        if not 1 <= self.max_attempts <= 100:
            found.append("max_attempts must be a number from 1 to 100")
        if not 1 <= self.max_plans_per_tick <= 1_000:
            found.append("max_plans_per_tick must be a number from 1 to 1000")
        return [problem for problem in found if problem is not None]

    def checked(self) -> Spec:
        """Return it, or refuse it with all its problems."""
        found = self.problems()
        if found:
            raise InputError(f"the schedule cannot be kept: {'; '.join(found)}")
        return self


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """Which schedule of an organization; the scope says what runs of it exclude each other, not who may see it."""

    name: str
    scope_kind: str = "global"
    scope_id: str = "global"

    def schedule_id(self, scope: Scope) -> str:
        """Return the id that stands for it."""
        parts = (scope.tenant_id, scope.organization_id, self.name, self.scope_kind, self.scope_id)
        return str(uuid.uuid5(_NAMESPACE, "\x1f".join(parts)))

    def checked(self) -> Named:
        """Return it, or refuse names that are none."""
        for part in (self.name, self.scope_kind, self.scope_id):
            if not _NAME.fullmatch(part):
                raise InputError(
                    f"{part!r} is no name of a schedule", hint="up to 200 letters, digits, dots, slashes, - and _"
                )
        return self


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is declared: its name, what it starts, and when."""

    named: Named
    kind: Kind
    target: dict[str, Any]
    """For a playbook {path, version?, workload}, for a source {dag, job}, for the platform {handler}."""
    spec: Spec


def schedule_stream(scope: Scope, schedule_id: str) -> Stream:
    """Return the stream of a schedule, which its slots live in as well."""
    return scope.stream(f"schedule/{schedule_id}")
