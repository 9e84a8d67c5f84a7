"""What evaluating a user's templates may cost. Values and operations go in; an error comes out when they cost too much.

meter.py           the steps that a thread may still take
weights.py         how many steps it costs to read a whole value
operators.py       arithmetic, comparisons, method calls and formats
priced_filters.py  Jinja's filters and tests, each with its price

Steps are counted, not timed: the same template with the same values costs the same on every machine, so a replay
decides the same. Nothing here knows the time.
"""
