"""Commands for what is stored: the database, payloads and their tiers, and how long all of it is kept."""
