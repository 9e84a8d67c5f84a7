"""The `http` kind: a rendered request goes in, the decoded response comes out.

`request`, `auth` and `response` are pure; `connection` speaks HTTP/1.1, `pool` keeps connections, and `session` uses
aiohttp for forms and proxies. Credentials never follow a redirect and never appear in a message.
"""
