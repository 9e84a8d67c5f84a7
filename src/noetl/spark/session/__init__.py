"""Starts Spark: options and a Java go in, a session per run comes out, on a JVM of our own or over Spark Connect.

`modes` is the entry. `class_archive` makes later starts faster. No JVM is left behind and none writes to the terminal.
"""
