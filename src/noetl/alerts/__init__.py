"""Alerts: conditions over data and the ledger go in; alerts, and messages about them to channels, come out."""
