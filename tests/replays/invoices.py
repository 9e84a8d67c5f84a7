"""The business object of the corpus: an invoice whose postings changed their schema once."""

from __future__ import annotations

import msgspec

from noetl.kernel.projections.folds.business_object import business_object
from noetl.kernel.projections.folds.fold import Row
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.event import Event

POSTED, PAID = "business.invoice.posted", "business.invoice.paid"


@business_object("invoice", events=[POSTED, PAID], ended=lambda row: row["paid"])
def invoice(row: Row | None, event: Event) -> Row:
    """Add up postings until the invoice is paid; what is posted after that is ignored."""
    row = row or {"cents": 0, "postings": 0, "currency": None, "paid": False}
    if event.event_type == POSTED:
        row["cents"] += event.meta["cents"]
        row["postings"] += 1
        row["currency"] = event.meta["currency"]
    else:
        row["paid"] = True
    return row


def cents_instead_of_an_amount(event: Event) -> Event:
    """Version 1 had `amount`, a decimal as text, in euros; version 2 has `cents` and `currency`."""
    whole, _, part = event.meta["amount"].partition(".")
    meta = {"cents": int(whole) * 100 + int(part.ljust(2, "0")), "currency": "EUR"}
    return msgspec.structs.replace(event, meta=meta, schema_version=2)


def folds() -> FoldRegistry:
    """Return the folds the corpus is folded with."""
    registry = FoldRegistry()
    registry.add(invoice)
    return registry


def upcasters() -> Upcasters:
    """Return the upcasters the corpus is read with."""
    found = Upcasters()
    found.register(f"noetl.{POSTED}", 1, cents_instead_of_an_amount)
    return found
