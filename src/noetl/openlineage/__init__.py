"""Tells other systems about tasks in the words of OpenLineage: made from the ledger, at least once, never skipping any."""
