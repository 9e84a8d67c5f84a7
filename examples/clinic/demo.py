"""Walks through a pipeline's life on the command line: `python -m examples.clinic.demo`, which `make demo` runs.

Starts the example's own API, then runs the commands that a person would, one after the other in this process, and says
before each what is about to happen and what is being waited for. Everything lies in `.noetl/`; running it again is welcome.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from noetl.cli.main import run

HERE = Path(__file__).parent
PROJECT = Path(".noetl/demo/clinic")
PORT = 18555
DATASET = "readings_by_age"
VIEW = Path(os.path.relpath(HERE.parent / "views" / "dataset_freshness.yaml"))
PICTURES = (Path(".noetl/demo/frames.png"), Path(".noetl/demo/frames.svg"))
COSTS = (
    "SELECT dataset, sum(CASE WHEN kind = 'dataset' THEN rows ELSE 0 END) AS rows, sum(bytes) AS bytes,"
    " round(sum(tool_seconds), 2) AS tools, round(sum(spark_seconds), 2) AS spark"
    " FROM noetl_costs WHERE dataset LIKE 'clinic.%' GROUP BY 1 ORDER BY 1"
)
_OLD = "round(avg(reading), 1) AS average"
_NEW = "CAST(percentile_approx(reading, 0.5) AS double) AS average"


def main() -> int:
    """Run all steps; the first that fails ends the demo with its exit code."""
    began = time.monotonic()
    # Small jobs in several JVMs: compiling them quickly takes less time than running them quickly would save.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    with api():
        project()
        say("1. Run the pipeline: two playbooks fetch from the API in frames, Spark cleans, joins and adds up.")
        say("   The first task on Spark waits until Spark has started, which takes some seconds.")
        noetl("dag", "run", f"{PROJECT}/dag.yaml")
        say(f"2. Read what it published. {DATASET} has checks, a checksum and a place in time (a mark).")
        noetl("datasets", "head", DATASET)
        first = shown()
        say("3. Change a job: the average becomes a median. What would a deploy do?")
        replace(_OLD, _NEW)
        noetl("dag", "plan", f"{PROJECT}/dag.yaml")
        say("4. Deploy: only what changed, and what reads it, is built, beside what readers still see.")
        noetl("dag", "deploy", f"{PROJECT}/dag.yaml", "--wait")
        say("5. Compare the new generation with the one that serves, before anybody sees it.")
        noetl("datasets", "diff", DATASET)
        say("6. Activate: all datasets of the DAG switch at once. This is the new answer.")
        noetl("dag", "activate", "clinic")
        noetl("datasets", "head", DATASET)
        second = shown()
        say("7. Roll back: the old data still stand, so nothing is computed.")
        noetl("dag", "rollback", "clinic")
        say(f"8. Ask for the first answer as of then, by its mark {first['mark']}: it must have the same checksum.")
        noetl("datasets", "head", DATASET, "--as-of", first["mark"])
        again = shown("--as-of", first["mark"])
        noetl("verify")
        look_back()
    same = first["checksum"] == again["checksum"]
    say(
        f"first answer {first['checksum'][:16]}, as of then {again['checksum'][:16]}: {'equal' if same else 'DIFFERENT'}"
    )
    say(f"the changed answer had {second['checksum'][:16]}; all took {time.monotonic() - began:.0f} s")
    next_steps()
    return 0 if same else 1


def next_steps() -> None:
    """End with three commands to try next, as they can be typed where the demo was started."""
    program = os.path.relpath(Path(sys.executable).with_name("noetl"))
    print("\nThree things to try next:")
    print(f"\n  See what the published dataset is made of:\n    $ {program} lineage {DATASET}")
    print(f"\n  Ask why the last execution ended as it did:\n    $ {program} why last")
    print(f"\n  Change a file in {PROJECT}, then see what would be built again, and why:")
    print(f"    $ {program} dag plan {PROJECT}/dag.yaml", flush=True)


def look_back() -> None:
    """Look at what has happened: a view that follows the ledger, the lake of all events, and a picture of one run."""
    say("9. All of that are events, and a view follows them: which dataset was committed to when, and how often?")
    say("   A server keeps it up to date by itself; here it is brought up to now once, which waits for Spark again.")
    noetl("views", "deploy", str(VIEW))
    noetl("views", "run", "dataset_freshness", "--once")
    noetl("views", "rows", "dataset_freshness")
    say("10. Put all events into the lake and make facts of them; then ask what it cost, like any other dataset.")
    noetl("lake", "sync")
    noetl("query", COSTS)
    say("11. Draw the frames of the last playbook that fetched: who had which rows when.")
    ran = answered("executions", "list", "--path", "examples/clinic/ingest", "--limit", "1")[0]["execution_id"]
    noetl("executions", "plot", ran, *(part for file in PICTURES for part in ("-o", str(file))))


def project() -> None:
    """Copy the example to where it may be changed."""
    shutil.rmtree(PROJECT, ignore_errors=True)
    PROJECT.mkdir(parents=True)
    for file in HERE.iterdir():
        if file.suffix in (".yaml", ".sql") or file.name == "vitals.py":
            text = file.read_text().replace("http://127.0.0.1:5555", f"http://127.0.0.1:{PORT}")
            (PROJECT / file.name).write_text(text)


def replace(old: str, new: str) -> None:
    """Change the published job's SQL."""
    file = PROJECT / "by_age.sql"
    text = file.read_text()
    if old not in text:
        sys.exit(f"{file} does not say {old!r} any more")
    file.write_text(text.replace(old, new))


def noetl(*arguments: str) -> None:
    """Run a command before the reader's eyes."""
    print(f"\n$ noetl {' '.join(arguments)}", flush=True)
    if code := run(arguments):
        sys.exit(f"`noetl {' '.join(arguments)}` ended with {code}")


def shown(*arguments: str) -> dict[str, str]:
    """Return checksum and mark of the published dataset."""
    found: dict[str, str] = answered("datasets", "show", DATASET, *arguments)
    return found


def answered(*arguments: str) -> Any:
    """Return what a command says as JSON."""
    with redirect_stdout(io.StringIO()) as answer:
        code = run((*arguments, "--json"))
    if code:
        sys.exit(f"`noetl {' '.join(arguments)}` ended with {code}")
    return json.loads(answer.getvalue())


def say(text: str) -> None:
    """Tell the reader something."""
    print(f"\n{text}" if text[0].isdigit() else text, flush=True)


@contextmanager
def api() -> Iterator[None]:
    """Serve the example's API for the time of the block."""
    command = [sys.executable, "-m", "examples.pft.mock_api", "--port", str(PORT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None
            if not serving.stdout.readline().startswith("listening"):
                sys.exit(f"the example's API could not be started; is port {PORT} in use?")
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=10) as answer:
                answer.read()
            yield
        finally:
            serving.terminate()


if __name__ == "__main__":
    sys.exit(main())
