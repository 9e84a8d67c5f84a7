"""Views over all tenants: facts of the ledger go in, and only what declared rules leave of them comes out.

    fact (events of all tenants) ──► grouped by a view's rules, per organization ──► redaction (pure) ──► rows
                                       PostgreSQL or Spark                              │
                                                                  audit event first ────┴──► the operator

A view is a Python object. Each field of its fact has exactly one rule, or the view cannot be made. Tenant and
organization are no fields, so no view can name them. The database itself hands out rows, only for recorded reads.
"""
