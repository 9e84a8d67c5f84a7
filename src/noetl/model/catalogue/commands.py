"""The event types of commands, and of what a task stores while it works on one. Joined to the others by `catalogue`."""

from __future__ import annotations

from typing import Final

import msgspec

from noetl.model.event_type import Attempt, EventType


class WorkStarted(msgspec.Struct, frozen=True):
    """By which attempt, and the names Spark knows it by."""

    attempt: int
    application_id: str
    job_tag: str


class Stalled(msgspec.Struct, frozen=True):
    """Which attempt cannot go on, and for want of what."""

    attempt: int
    part: str


class CommandIssued(msgspec.Struct, frozen=True):
    """What kind of work the command asks for."""

    tool_kind: str


COMMAND_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="command.issued",
        sentence="One step's work was made available to workers.",
        aggregate="command",
        needs=("node_name", "command_id"),
        meta=CommandIssued,
        once_per="command_id",
        opens=("command",),
        steers=True,
    ),
    EventType(
        name="command.claimed",
        sentence="A worker took a lease on a command.",
        aggregate="command",
        needs=("command_id",),
        meta=Attempt,
        changes=("command",),
        attempt="begun",
    ),
    EventType(
        name="command.started",
        sentence="A command's frames were about to be given to Spark, under this application and tag.",
        aggregate="command",
        needs=("command_id",),
        meta=WorkStarted,
    ),
    EventType(
        name="command.stalled",
        sentence="The holder of a command began to wait for a part of the platform that does not answer; its attempt goes on after that.",
        aggregate="command",
        needs=("command_id",),
        meta=Stalled,
        retried=True,
    ),
    EventType(
        name="command.resumed",
        sentence="A wait for a part of the platform ended: it answers again.",
        aggregate="command",
        needs=("command_id",),
        meta=Stalled,
        retried=True,
    ),
    EventType(
        name="command.completed",
        sentence="A command's work is done.",
        aggregate="command",
        needs=("command_id",),
        retried=True,
        ends=("command",),
        projections=("execution", "loop"),
        steers=True,
        attempt="completed",
    ),
    EventType(
        name="command.attempt_failed",
        sentence="One attempt at a command failed; another may follow.",
        aggregate="command",
        needs=("command_id",),
        meta=Attempt,
        retried=True,
        changes=("command",),
        attempt="attempt_failed",
    ),
    EventType(
        name="command.abandoned",
        sentence="The command's lease ran out and the command is free again.",
        aggregate="command",
        needs=("command_id",),
        meta=Attempt,
        changes=("command",),
        attempt="abandoned",
    ),
    EventType(
        name="command.returned",
        sentence="A worker handed a command back, which is free again; that is no failed attempt.",
        aggregate="command",
        needs=("command_id",),
        meta=Attempt,
        retried=True,
        changes=("command",),
        attempt="returned",
    ),
    EventType(
        name="command.failed",
        sentence="A command failed for good.",
        aggregate="command",
        needs=("command_id",),
        retried=True,
        ends=("command",),
        overrules_holders=True,
        projections=("execution", "loop"),
        steers=True,
        attempt="failed",
    ),
    EventType(
        name="artifact.stored",
        sentence="A payload was put into the store by a task, to stay for as long as this event is kept.",
        aggregate="artifact",
        needs=("node_name", "payload_ref"),
        observed=True,
    ),
)
"""In the order a command meets them."""
