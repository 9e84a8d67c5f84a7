"""Requests that a process makes because a user asked for them: one guard decides where they may go."""
