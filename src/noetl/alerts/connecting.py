"""The parts of alerts, connected: database and ledger go in. Nothing runs by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from noetl.alerts.applied import AppliedRules
from noetl.alerts.deliveries import Deliveries
from noetl.alerts.evaluating import Evaluating
from noetl.alerts.judging import Judging
from noetl.alerts.reading import AlertsReading
from noetl.alerts.trying import Trying
from noetl.alerts.writing import AlertWriting
from noetl.catalog.evaluating import Evaluating as Beside
from noetl.dispatch.drafts import Drafting
from noetl.ledger.database import Database
from noetl.ledger.port import Ledger


@dataclass(frozen=True)
class Alerts:
    """What one process does about alerts."""

    applied: AppliedRules
    reading: AlertsReading
    deliveries: Deliveries
    judging: Judging
    evaluating: Evaluating
    writing: AlertWriting
    trying: Trying


def connect_alerts(
    database: Database,
    ledger: Ledger,
    drafting: Drafting,
    mint: Callable[[], int],
    aside: Beside | None = None,
) -> Alerts:
    """Connect the parts; `aside` is where a process reads what users wrote, if it has such a place already."""
    writing = AlertWriting(drafting)
    applied = AppliedRules(database, ledger, drafting, aside or Beside())
    judging = Judging(database, ledger, writing)
    return Alerts(
        applied=applied,
        reading=AlertsReading(database),
        deliveries=Deliveries(database, ledger, writing),
        judging=judging,
        evaluating=Evaluating(database, applied, judging),
        writing=writing,
        trying=Trying(applied, writing, ledger, mint),
    )
