"""What a worker and its Spark driver process say to each other: length-prefixed msgpack over a socket pair.

The driver knows no database and no ledger: it is told what to read and where to write, and answers with what it wrote.
"""

from __future__ import annotations

import struct
from typing import Any, Final, Literal

import msgspec

from noetl.model.dataset import Field, FileEntry, Manifest
from noetl.model.lineage import Lineage
from noetl.model.task import CheckResult, PartitionWrite, TaskGrant
from noetl.spark.session.options import SparkOptions


class Work(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt at one task, with the manifests its references stand for."""

    grant: TaskGrant
    manifests: dict[str, Manifest]
    """By the SHA-256 of the payload that a part's reference names."""
    secrets: dict[str, Any] = {}

    @property
    def tag(self) -> str:
        """The name Spark's jobs of this attempt carry, by which they are interrupted."""
        return f"noetl-{self.grant.lease.task_id}-{self.grant.lease.attempt}"


class WorkResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one attempt in the driver."""

    task_id: str
    attempt: int
    status: Literal["ok", "error", "interrupted"]
    writes: tuple[PartitionWrite, ...] = ()
    dropped: tuple[tuple[int, str], ...] = ()
    checks: tuple[CheckResult, ...] = ()
    operator_state: dict[str, Any] | None = None
    metrics: dict[str, Any] = {}
    lineage: dict[int, Lineage] = {}
    error: str | None = None
    error_kind: str | None = None
    retryable: bool = True
    log: str = ""
    """What the job printed, Spark's own log lines of it and the executors' errors."""


class Open(msgspec.Struct, frozen=True, tag=True):
    """Start or reach Spark; the first message, answered by `Ready` or `Broken`."""

    options: SparkOptions
    scratch: str
    """A directory of this driver alone, removed when it has ended."""


class UseCode(msgspec.Struct, frozen=True, tag=True):
    """Let jobs import the Python of this bundle; sent at most once, before the first run."""

    directory: str
    zipped: str


class Run(msgspec.Struct, frozen=True, tag=True):
    """Run these tasks, all of one job: as one Spark job where they are separable, else as concurrent jobs."""

    works: tuple[Work, ...]
    organization: str = ""
    """Whose fair share of Spark the tasks use."""


class MakeUnique(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Drop from files just written the rows whose key landed meanwhile by another commit."""

    work: Work
    write: PartitionWrite
    landed: Manifest
    """The partition as it stands now."""
    organization: str = ""


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """Work of a playbook's step, with what executors need to reach payloads and ledger; answered like a task."""

    id: str
    attempt: int
    organization: str
    reach: dict[str, Any]
    """How executors connect; never recorded, since it may hold secrets."""

    @property
    def tag(self) -> str:
        """The name Spark's jobs of this attempt carry, by which they are interrupted."""
        return f"noetl-{self.id}-{self.attempt}"


class RunFrames(Errand, frozen=True, tag=True, kw_only=True):
    """Work off the frames of a loop in so many lanes, each of them one task of a Spark job."""

    lanes: int
    grant: bytes
    """The command under which frames are claimed, as msgpack."""
    worker: str


class Rows(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rows of a playbook that a query reads as a table: payloads of frames, or the rows themselves where they are few."""

    refs: tuple[dict[str, Any], ...] = ()
    lines: tuple[str | None, ...] = ()
    """Each row as JSON."""


class RunQuery(Errand, frozen=True, tag=True, kw_only=True):
    """Run SQL, or Python that defines `main(session, **tables)`, over rows of a playbook and give back what it comes to."""

    tables: dict[str, Rows]
    sql: str | None = None
    code: str | None = None
    values: dict[str, Any] = {}
    """What the SQL knows as `:name`, or the function as arguments."""
    most: int = 10_000
    """Rows it may come to."""


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a dataset that a query reads as a table: those of exactly these files."""

    name: str
    columns: tuple[Field, ...]
    files: tuple[FileEntry, ...]


class RunSelect(Errand, frozen=True, tag=True, kw_only=True):
    """Run a checked SELECT over files of datasets and give back its rows; answered like an errand."""

    relations: tuple[Relation, ...]
    sql: str


class RunProgram(Errand, frozen=True, tag=True, kw_only=True):
    """Run a program of ours that may ask its worker things while it runs, since it knows no database; see `programs`."""

    program: str
    """`module:function` under `noetl.spark`."""
    arguments: dict[str, Any] = {}
    settings: dict[str, str] = {}
    """Spark settings of its session."""


class Asks(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A program asks its worker something, or tells it how far it has come, and waits for `Answer`."""

    job_tag: str
    number: int
    question: dict[str, Any]


class Answer(msgspec.Struct, frozen=True, tag=True, kw_only=True, omit_defaults=True):
    """What the worker says to a question of a program, or why it refuses."""

    job_tag: str
    number: int
    answer: dict[str, Any] = {}
    refusal: str | None = None


class Interrupt(msgspec.Struct, frozen=True, tag=True):
    """Stop all Spark jobs with this tag."""

    job_tag: str


class AskToStop(msgspec.Struct, frozen=True, tag=True):
    """Let the function of this tag know that it should end soon by itself."""

    job_tag: str


class InterruptLeft(msgspec.Struct, frozen=True, tag=True):
    """Stop what another driver, gone by now, left running on a server of its own."""

    application_id: str
    job_tag: str


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End the session and the process."""


class Ready(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The session is up."""

    application_id: str
    master: str
    spark_version: str
    java_version: str
    seconds: float


class Done(msgspec.Struct, frozen=True, tag=True):
    """One attempt has ended; sent as soon as it has, whatever else still runs."""

    result: WorkResult


class Broken(msgspec.Struct, frozen=True, tag=True):
    """The session cannot be had or is gone, and why; the process ends."""

    message: str


ToDriver = (
    Open
    | UseCode
    | Run
    | MakeUnique
    | RunFrames
    | RunQuery
    | RunSelect
    | RunProgram
    | Answer
    | Interrupt
    | AskToStop
    | InterruptLeft
    | Stop
)
FromDriver = Ready | Done | Asks | Broken
AnyErrand = RunFrames | RunQuery | RunSelect | RunProgram

PREFIX: Final = struct.Struct("!I")
"""The length of a message stands before it."""
_to_driver: Final = msgspec.msgpack.Decoder(ToDriver)
_from_driver: Final = msgspec.msgpack.Decoder(FromDriver)


def encode(message: ToDriver | FromDriver) -> bytes:
    """Return a message with its length before it."""
    body = msgspec.msgpack.encode(message)
    return PREFIX.pack(len(body)) + body


def to_driver(body: bytes) -> ToDriver:
    """Read what a worker said."""
    message: ToDriver = _to_driver.decode(body)
    return message


def from_driver(body: bytes) -> FromDriver:
    """Read what a driver said."""
    message: FromDriver = _from_driver.decode(body)
    return message
