"""What evaluating a user's templates may cost. Values and operations go in; an error comes out when they cost too much.

meter.py      the steps that a thread may still take, and who looks at a clock meanwhile
weights.py    how many steps a value costs whoever reads all of it
formats.py    how large a format's text becomes, known before it is made
operators.py  arithmetic, comparisons and calls of methods within bounds
metered.py    Jinja's filters and tests, each with its price
keeping.py    what was made of texts, kept by their length

Steps are counted, not timed: the same template with the same values costs the same on every machine, so whoever
decides again decides alike. Nothing here knows the time.
"""
