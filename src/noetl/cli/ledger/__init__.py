"""Commands for the ledger and what is derived from it: proofs, projections, the stream and the event lake."""
