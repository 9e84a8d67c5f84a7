"""Every error NoETL raises on purpose.

    NoetlError
    ├─ InputError           what the user wrote is wrong                       (terminal)
    │  ├─ ConfigError       settings do not add up
    │  ├─ EventInvalid      an event breaks an invariant of the envelope
    │  ├─ FoldFailed        a user's fold cannot take an event
    │  ├─ PlaybookInvalid   a playbook with problems, all of them at once
    │  ├─ TemplateFailed    a template that cannot be rendered
    │  │  └─ TemplateUnbounded  one that takes more steps or time than it may
    │  ├─ ChildTooDeep      executions start each other deeper than they may
    │  ├─ ReportRefused     a worker reports what its grant does not allow
    │  └─ LocatorInvalid    text that is no noetl:// locator
    ├─ Conflict             somebody else was first                            (superseded)
    │  ├─ VersionConflict   the stream is not at the expected version
    │  ├─ AlreadyRecorded   a fact that may stand once per execution stands already
    │  └─ LeaseLost         the lease belongs to another holder now
    ├─ Denied               the caller may not do that                         (terminal)
    ├─ KeyReused            an idempotency key came back with other content    (terminal)
    ├─ NotFound             no such execution, object, row                     (terminal)
    │  ├─ PayloadMissing    no object under that digest
    │  └─ HistoryNotKept    older than what retention keeps
    ├─ Corrupt              bytes do not match their digest                    (terminal)
    │  └─ Damaged           a file of a dataset is not what was committed
    ├─ Erased               the tenant's key was destroyed                     (terminal)
    ├─ PayloadCollected     garbage collection took the object: store it again (transient)
    ├─ Unavailable          a server does not answer                           (transient)
    │  ├─ EventsWait        accepted, and on the way into the ledger
    │  ├─ FramesOpen        a loop cannot end while frames of it wait for an owner
    │  └─ OutsideUnavailable  it is a server of the user's, or Spark, that does not answer
    └─ Unsupported          this build or server cannot do that                (terminal)

The disposition tells a caller what to do: *terminal* errors are reported, *transient* ones are tried again, and
*superseded* ones are no failure at all, only the news that the work is already done or is somebody else's.
"""

from __future__ import annotations

from typing import ClassVar, Literal

Disposition = Literal["terminal", "transient", "superseded"]


class NoetlError(Exception):
    """Something went wrong in NoETL."""

    code: ClassVar[str] = "error"
    disposition: ClassVar[Disposition] = "terminal"

    def __init__(self, message: str | None = None, *, hint: str | None = None, **details: object) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())
        self.hint = hint
        self.details = details

    @property
    def message(self) -> str:
        """The sentence for a person."""
        return str(self.args[0])


class InputError(NoetlError):
    """What was given is not valid."""

    code = "input_invalid"


class ConfigError(InputError):
    """The configuration has problems."""

    code = "config_invalid"


class EventInvalid(InputError):
    """The event breaks an invariant of the envelope."""

    code = "event_invalid"


class FoldFailed(InputError):
    """A user's fold cannot take an event."""

    code = "fold_failed"


class PlaybookInvalid(InputError):
    """The playbook has problems."""

    code = "playbook_invalid"


class TemplateFailed(InputError):
    """A template cannot be rendered: its error names the playbook's field."""

    code = "template_failed"


class TemplateUnbounded(TemplateFailed):
    """A template takes more steps or time than it may: its error names the playbook's field."""

    code = "template_unbounded"


class ChildTooDeep(InputError):
    """Executions start each other deeper than `runtime.scheduler.max_child_depth` allows."""

    code = "child_too_deep"


class ReportRefused(InputError):
    """A worker's report says what its grant does not allow; nothing of it is recorded."""

    code = "report_refused"


class LocatorInvalid(InputError):
    """The text is not a noetl:// locator."""

    code = "locator_invalid"


class Conflict(NoetlError):
    """Somebody else was first."""

    code = "conflict"
    disposition = "superseded"


class VersionConflict(Conflict):
    """The stream is not at the expected version."""

    code = "version_conflict"


class AlreadyRecorded(Conflict):
    """This fact may stand once per execution and stands already."""

    code = "already_recorded"


class LeaseLost(Conflict):
    """The lease belongs to another holder now."""

    code = "lease_lost"


class Denied(NoetlError):
    """The caller may not do that."""

    code = "denied"


class KeyReused(NoetlError):
    """The idempotency key was used before with other content."""

    code = "idempotency_key_reused"


class NotFound(NoetlError):
    """There is no such thing."""

    code = "not_found"


class PayloadMissing(NotFound):
    """There is no object under that digest."""

    code = "payload_missing"


class HistoryNotKept(NotFound):
    """That part of the history is older than what retention keeps."""

    code = "history_not_kept"


class Corrupt(NoetlError):
    """The bytes do not match their digest."""

    code = "corrupt"


class Damaged(Corrupt):
    """A file of a dataset is not what was committed."""

    code = "damaged"


class Erased(NoetlError):
    """The tenant's key was destroyed, so its data can no longer be read."""

    code = "erased"


class PayloadCollected(NoetlError):
    """The object was garbage-collected before an event referred to it; store it again."""

    code = "payload_collected"
    disposition = "transient"


class Unavailable(NoetlError):
    """A server that is needed does not answer."""

    code = "unavailable"
    disposition = "transient"


class EventsWait(Unavailable):
    """What was asked for is accepted, and its events are still on their way into the ledger."""

    code = "events_wait"


class FramesOpen(Unavailable):
    """Frames of a loop wait for another owner, so the loop cannot end yet."""

    code = "frames_open"


class OutsideUnavailable(Unavailable):
    """A server of the user's, or Spark, does not answer: each try counts as an attempt, unlike where the platform is away."""

    code = "outside_unavailable"


class Unsupported(NoetlError):
    """This build or this server cannot do that."""

    code = "unsupported"


UNREADABLE = (Corrupt, Erased, PayloadMissing)
"""What is said of stored bytes that no later look will find in order."""
