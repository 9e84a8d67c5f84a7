"""The `nats` kind: one operation on key-value buckets, object buckets, streams or subjects per task.

A call goes in, the server's answer comes out as a mapping. `connection` keeps one client per server and credential.
"""
