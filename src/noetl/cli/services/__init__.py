"""Commands for alerts, schedules, views, curated views and credentials."""
