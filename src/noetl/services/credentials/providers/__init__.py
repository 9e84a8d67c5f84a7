"""Where secrets may come from: the name of a secret goes in, its fields come out as text.

One module per kind of provider; `registry` knows them by name. Providers keep nothing, and load a client library only
when it is needed.
"""
