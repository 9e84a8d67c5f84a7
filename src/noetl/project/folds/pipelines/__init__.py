"""The rows of pipelines and people, folded: the rules of `noetl.apply_pipelines`, told a second time to compare."""
