"""The contracts of open work as tests: the rows of commands, stages, frames and executions, and what dispatch asks of them."""
