"""How functions outside are given a task they run: the whole grant is sent, and they complete it by the API."""
