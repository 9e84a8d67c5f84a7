"""A playbook as values: what the parser makes and everything else reads. Templates stand here as their source text.

A field typed `Any` may hold a template (a string with `{{ }}`) where its value is only known at run time.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl.model.event import INLINE_LIMIT

LoopMode = Literal["sequential", "parallel", "cursor", "fanout"]
Verb = Literal["continue", "retry", "jump", "break", "fail"]
Backoff = Literal["none", "fixed", "linear", "exponential"]


class Place(msgspec.Struct, frozen=True):
    """Where something stands in the source, both counted from 1."""

    line: int
    column: int


NOWHERE = Place(1, 1)


class Then(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy rule does."""

    do: Verb = "continue"
    attempts: Any = 3
    """How often the task is tried in total."""
    backoff: Backoff = "none"
    delay: Any = 1.0
    to: str | None = None
    """The label to jump to; `previous` is the task before."""
    set: dict[str, Any] = {}


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a policy; the first whose condition holds decides."""

    when: Any = None
    """None stands for `else`: it always holds."""
    then: Then
    place: Place = NOWHERE
    origins: Any = None
    """In which lines the templates of its parts stand: see `origins`."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What follows a task's outcome. Without a matching rule: ok continues, an error fails."""

    rules: tuple[Rule, ...] = ()
    on_unmatched: Literal["continue", "fail"] | None = None


class Select(msgspec.Struct, frozen=True):
    """A value taken out of a result, by a path such as `$.data.paging.total`."""

    path: str
    name: str


class Accumulate(msgspec.Struct, frozen=True, kw_only=True):
    """How results of a step that runs several times are gathered."""

    strategy: Literal["append", "replace", "merge", "concat"] = "append"
    merge_path: str | None = None
    max_items: int | None = None


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a task's result."""

    select: tuple[Select, ...] = ()
    accumulate: Accumulate | None = None
    inline_max_bytes: int = INLINE_LIMIT


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One use of a tool. `options` are the kind's own fields, as written."""

    name: str
    kind: str
    auth: Any = None
    input: dict[str, Any] = {}
    options: dict[str, Any] = {}
    timeout: Any = None
    policy: Policy | None = None
    output: Output | None = None
    set: dict[str, Any] = {}
    place: Place = NOWHERE
    origins: Any = None


class Arc(msgspec.Struct, frozen=True, kw_only=True):
    """A way from one step to another."""

    step: str
    when: Any = None
    """None means always."""
    set: dict[str, Any] = {}
    place: Place = NOWHERE
    origins: Any = None


class Router(msgspec.Struct, frozen=True, kw_only=True):
    """Where it goes after a step."""

    mode: Literal["exclusive", "inclusive"] = "exclusive"
    on_no_match: Literal["complete", "quiet"] = "complete"
    """Either way the branch ends where no arc holds; `quiet` is no error even where every step must lead on."""
    arcs: tuple[Arc, ...] = ()


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """A query that claims rows in the user's database until there are none."""

    kind: str
    claim: str
    auth: Any = None
    options: dict[str, Any] = {}


class FramePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of a frame and how its rows are worked off. What is None is left to the installation's defaults."""

    max_rows: Any = None
    max_seconds: Any = None
    max_bytes: Any = None
    lease_seconds: Any = 120
    heartbeat_seconds: Any = 30
    row_concurrency: Any = 1
    process: Literal["row", "frame"] = "row"
    commit: Literal["row", "frame"] = "row"
    verify_ipc: bool = False
    retry_mode: Literal["whole_frame", "resume"] = "whole_frame"
    max_attempts: Any = 3


class Fanout(msgspec.Struct, frozen=True, kw_only=True):
    """When a fan-out counts as failed."""

    fail_fast: bool = False
    allow_partial: bool = True
    max_shard_retries: int = 2


class Loop(msgspec.Struct, frozen=True, kw_only=True):
    """A step that is worked off once per row; exactly one of `collection` and `cursor` is given."""

    iterator: str
    collection: Any = None
    cursor: Cursor | None = None
    mode: LoopMode = "sequential"
    max_in_flight: Any = None
    frame: FramePolicy = FramePolicy()
    fanout: Fanout = Fanout()
    exec: Literal["local", "distributed", "spark"] | None = None
    """Where frames run; None leaves it to the executor of the playbook."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One node of the workflow. A step without a tool has one noop task."""

    name: str
    description: str | None = None
    input: dict[str, Any] = {}
    loop: Loop | None = None
    tasks: tuple[Task, ...]
    is_sequence: bool = False
    """The tool was written as a list: the result of each task is also visible by its name."""
    set: dict[str, Any] = {}
    router: Router | None = None
    timeout: Any = None
    admit: tuple[Admission, ...] = ()
    failure: Literal["fail_fast", "best_effort"] = "fail_fast"
    place: Place = NOWHERE
    origins: Any = None


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that lets a step be entered or not; None for `when` always holds."""

    when: Any = None
    allow: Any = True


class KeychainEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A secret or token the workflow may use as `keychain.<name>.<field>`."""

    name: str
    kind: Literal["secret_manager", "oauth2", "credential", "bearer", "token", "google_id_token", "static"]
    scope: Literal["local", "global", "shared"] = "local"
    auth: str | None = None
    auto_renew: bool = False
    ttl: int | None = None
    options: dict[str, Any] = {}
    """Everything else as written: provider, map, endpoint, method, headers, data, region."""
    place: Place = NOWHERE
    origins: Any = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one execution may come to before it is ended as failed."""

    steps_without_work: int = 1_000
    """Steps in a row that give a worker nothing to do; also tasks in a row that do nothing, within one step."""
    steps: int = 1_000_000
    events: int = 10_000_000
    """Of the execution's own stream."""
    seconds: float | None = None
    """From the request on, waiting included."""


class Playbook(msgspec.Struct, frozen=True, kw_only=True):
    """A whole playbook. `digest` is the SHA-256 of its canonical source, which is its version."""

    name: str
    path: str
    metadata: dict[str, Any]
    executor: dict[str, Any] = {}
    workload: dict[str, Any] = {}
    workload_origins: Any = None
    """In which lines the templates of its defaults stand: see `origins`."""
    keychain: tuple[KeychainEntry, ...] = ()
    workbook: dict[str, Task] = {}
    steps: dict[str, Step]
    """By name, in the order written."""
    entry: str
    final: str | None = None
    """A step that runs after everything else, whether the workflow went well or not."""
    no_next_is_error: bool = False
    limits: Limits = Limits()
    digest: str
