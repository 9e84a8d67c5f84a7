"""The worker of tasks: granted tasks go in, committed or failed attempts come out.

`worker` claims tasks of one job together, `attempts` keeps their leases and reports each end. `runner` is the
promise of what runs them: `in_process` here, `on_spark` in a driver process. No task is created or routed here.
"""
