"""The rows of pipelines and people, folded: the rules of `noetl.apply_pipelines_v1`, told a second time to compare."""
