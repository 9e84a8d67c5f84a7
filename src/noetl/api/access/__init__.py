"""Who may call what: a request goes in, its caller comes out, or a refusal.

Tokens, callers of this machine, webhooks and sealed answers are judged here and nowhere else.
"""
