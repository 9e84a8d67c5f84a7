"""One kind of task per file; `port` is the promise, `registry` finds the kinds."""
