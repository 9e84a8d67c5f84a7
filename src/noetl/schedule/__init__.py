"""Schedules: when something is planned, who claims a planned moment, and what is started then."""
