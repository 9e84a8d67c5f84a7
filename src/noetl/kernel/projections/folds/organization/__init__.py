"""The rows of an organization, folded: its people, DAGs, datasets, tasks, schedules, alerts and views.

Events of each stream go in, in their order; rows by table and key come out. These are the rules of the SQL function
`noetl.apply_pipelines`, written a second time so that `replay` can compare both. Pure; leases and heartbeats are not
here.
"""
