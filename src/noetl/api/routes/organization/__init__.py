"""Routes for what an organization keeps beside its work: schedules, alerts, people, tokens, credentials; and health."""
