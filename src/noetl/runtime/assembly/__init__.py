"""The parts of one process, each connected to its runtime: engine, pipelines, and every service.

Settings and open connections go in; parts that run come out. Roles and commands choose among them; no rule of the
product is decided here.
"""
