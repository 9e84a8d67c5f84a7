"""DAGs and datasets by name: files and names go in, immutable versions and pinned datasets come out.

`dags/` registers, activates and shows versions; `datasets/` shows what readers see, now or at a mark.
User code is read, never run.
"""
