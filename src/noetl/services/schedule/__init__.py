"""Schedules: definitions go in; each planned moment is claimed once, and its handler is run to a recorded end.

`planning` and `cron` are pure. `scheduler` claims what is due, `slot_runner` runs it, `lost_runs` takes back slots
whose runner is gone. The database's clock decides what is due, never the clock of a process.
"""
