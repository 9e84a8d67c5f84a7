"""Where work is done: a worker takes commands and frames, runs their tasks with tools and reports what came of it."""
