"""The operator `pyspark`: a function of the user's, DataFrames in, DataFrame out."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame

from noetl.errors import InputError
from noetl.model.dataset import partition_values
from noetl.spark.drivers.ongoing_work import stop_asked
from noetl.spark.operators.port import Given, Made, TaskContext


def pyspark_function(given: Given) -> Made:
    """Call the job's function with its inputs by alias, and `spark`, `context` and `state` if it takes them.

    `state` is what the job's last task left in it: a dictionary, which the function may change.
    """
    function, name = _function(given.config)
    grant = given.work.grant
    state = deepcopy(grant.operator_state)
    offered: dict[str, Any] = {
        "spark": given.session,
        "context": TaskContext(
            dag=grant.dag,
            job=grant.job,
            partition_key=grant.partition_key,
            partition=partition_values(grant.partition_key),
            execution_id=grant.execution_id,
            attempt=grant.lease.attempt,
            config=grant.config,
            secrets=given.work.secrets,
            asked=partial(stop_asked, given.work.tag),
        ),
        "state": state,
    }
    arguments = _arguments(function, name, given.inputs, offered)
    returned = function(**arguments)
    changed = arguments.get("state") is state and state != grant.operator_state
    return Made(_outputs(returned, name, len(grant.targets)), state=_told(state, name) if changed else None)


def _told(state: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a state as the ledger gives it back."""
    try:
        kept: dict[str, Any] = json.loads(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError) as problem:
        raise InputError(f"the state {name} leaves is no JSON: {problem}") from None
    return kept


def _arguments(
    function: Callable[..., Any], name: str, inputs: Mapping[str, DataFrame], offered: Mapping[str, Any]
) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
    names = {one.name for one in parameters}
    extra = {key: value for key, value in offered.items() if key in names and key not in inputs}
    missing = [alias for alias in inputs if alias not in names and not takes_any]
    if missing:
        raise InputError(
            f"{name} takes no argument {missing[0]!r}, which is an input of the job: add it, or `**inputs`"
        )
    wanted = [
        one.name
        for one in parameters
        if one.default is inspect.Parameter.empty
        and one.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        and one.name not in inputs
        and one.name not in offered
    ]
    if wanted:
        raise InputError(
            f"{name} needs {wanted[0]!r}, which is no input of the job; it has {', '.join(inputs) or 'none'}"
        )
    return {**inputs, **extra}


def _outputs(returned: Any, name: str, targets: int) -> dict[int, DataFrame]:
    match returned:
        case None if not targets:
            return {}
        case dict():
            found = {int(key): value for key, value in returned.items()}
        case tuple() | list():
            found = dict(enumerate(returned))
        case _:
            found = {0: returned}
    for key, value in found.items():
        # A frame of Spark Connect is of another class than one of a session in this process.
        if not hasattr(value, "schema") or not hasattr(value, "mapInArrow"):
            raise InputError(f"{name} must return a DataFrame for output {key}, not {type(value).__name__}")
    return found


def _function(config: Mapping[str, Any]) -> tuple[Callable[..., Any], str]:
    if script := config.get("script"):
        return _named(_script(str(script)), "run", str(script)), f"run in {script}"
    module, _, name = str(config.get("function") or "").partition(":")
    if not module or not name:
        raise InputError("a pyspark job needs `function: module:name` or `script: file.py`")
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise InputError(
            f"there is no module {module!r} beside the DAG's file or among the installed packages"
        ) from error
    return _named(loaded, name, module), f"{module}:{name}"


def _named(module: ModuleType, name: str, where: str) -> Callable[..., Any]:
    function = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"{where} has no function {name!r}")
    found: Callable[..., Any] = function
    return found


def _script(script: str) -> ModuleType:
    path = PurePosixPath(script)
    name = ".".join(path.with_suffix("").parts)
    if all(part.isidentifier() for part in name.split(".")):
        return importlib.import_module(name)
    if name in sys.modules:
        return sys.modules[name]
    file = next((Path(base, script) for base in sys.path if Path(base, script).is_file()), None)
    spec = importlib.util.spec_from_file_location(name, file) if file is not None else None
    if spec is None or spec.loader is None:
        raise InputError(f"there is no script {script!r} beside the DAG's file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    # Executors cannot import a file of such a name, so its functions travel as they are.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module
