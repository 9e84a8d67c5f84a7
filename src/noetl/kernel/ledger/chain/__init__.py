"""The ledger as evidence: links bind each call to what stood before it, trees and signed heads bind the whole.

    normalizer (leaves) ──► append, materialize ──► links        in the transaction of the events
                                                      │
                         notary: Merkle trees ◄───────┘ ──► signed heads ──► a file, S3 with object lock
                                     │                          │
                                  proofs ──────────────► checked on any machine, without a database

Links find a change that did not rewrite everything after it; only a head that is kept elsewhere finds one that did.
"""
