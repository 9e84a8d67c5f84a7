"""What runs when a planned moment has come: a slot goes in, an outcome comes out.

`port` is the promise. A handler may run again after a crash, and starts the same work only once per moment.
"""
