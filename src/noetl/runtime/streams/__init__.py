"""The streams that the settings name: opened, filled by relays, shown, and used for hints between processes."""
