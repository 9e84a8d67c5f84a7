"""`python -m noetl.testing.chaos`: one random run, or several, and what became of them."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import aiohttp
import msgspec

from noetl.testing.chaos.installation import Installation, WritePath
from noetl.testing.chaos.load import DAG, REQUEST_SECONDS, Load
from noetl.testing.chaos.plan import planned
from noetl.testing.chaos.trouble import Trouble
from noetl.testing.chaos.verdict import judge

EXAMPLES = """\
examples:
  python -m noetl.testing.chaos --minutes 10 --seed 7
  python -m noetl.testing.chaos --minutes 2 --seed 1 --seeds 3 --write-path stream
  python -m noetl.testing.chaos --minutes 1 --no-spark --json
"""


def main() -> int:
    """Run, print what happened, and return 0 only if every promise held."""
    given = _arguments().parse_args()

    def say(text: str) -> None:
        if not given.json:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    reports = []
    for seed in range(given.seed, given.seed + given.seeds):
        ways: tuple[WritePath, ...] = get_args(WritePath) if given.write_path == "all" else (given.write_path,)
        for way in ways:
            reports.append(asyncio.run(run(seed, given.minutes * 60, way, say, spark=given.spark, keep=given.keep)))
    if given.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(reports)).decode() + "\n")
    return 0 if all(one["holds"] for one in reports) else 1


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m noetl.testing.chaos",
        description="Let random trouble happen to a whole installation, and count what was lost, doubled or left undone. "
        "Exit 0 only if nothing was.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long trouble lasts (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="what decides which trouble (default: 1)")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds to run, from --seed on (default: 1)")
    parser.add_argument(
        "--write-path",
        choices=[*get_args(WritePath), "all"],
        default="all",
        help="write path, or all in turn (default)",
    )
    parser.add_argument("--no-spark", dest="spark", action="store_false", help="build no datasets on Spark")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs even when all held")
    parser.add_argument("--json", action="store_true", help="print the reports as JSON instead of a story")
    return parser


async def run(
    seed: int, seconds: float, way: WritePath, say: Callable[[str], None], *, spark: bool, keep: bool = False
) -> dict[str, Any]:
    """Run one seed in one write path and return its report."""
    folder = await asyncio.to_thread(_made_folder)
    say(f"seed {seed}, write path {way}, {seconds:g} s of trouble in {folder}")
    installation = Installation(folder, way, spark=spark)
    timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
    holds = False
    try:
        await installation.start()
        async with aiohttp.ClientSession(timeout=timeout) as http:
            load = Load(installation.url, http, dag=spark)
            await load.register()
            if spark:
                await asyncio.to_thread(_deploy, installation, folder)
            incidents = planned(seed, seconds, installation.targets())
            loading = asyncio.create_task(load.run())
            trouble = Trouble(installation, say)
            await trouble.happen(incidents, seconds)
            await installation.heal()
            load.stop()
            await loading
            say("all is well again; waiting for everything to end")
            verdict = await judge(installation, http, load.acknowledged, shadow=way == "shadow")
        holds = verdict.holds
        report = {
            "seed": seed,
            "write_path": way,
            "seconds": seconds,
            "holds": holds,
            "incidents": sum(trouble.happened.values()),
            "happened": trouble.happened,
            "left_out": trouble.left_out,
            "killed_in_grace": trouble.killed_in_grace,
            "ended_by_themselves": {
                role.name: role.ended_by_itself for role in installation.roles.values() if role.ended_by_itself
            },
            "retries": load.acknowledged.retries,
            "without_answer": load.acknowledged.refused_facts,
            **msgspec.to_builtins(verdict),
        }
        say(told(report))
        return report
    finally:
        await installation.end()
        if holds and not keep:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            say(f"logs: {folder}")


def _made_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="noetl-chaos-"))
    # Run by root, PostgreSQL has another account, which must pass through to its data.
    folder.chmod(0o755)
    return folder


def _deploy(installation: Installation, folder: Path) -> None:
    dag = folder / "dag.yaml"
    dag.write_text(DAG, encoding="utf-8")
    done = installation.noetl("dag", "deploy", str(dag), "--wait", "--activate", seconds=300)
    if done.returncode:
        raise RuntimeError(f"the DAG was not deployed: {done.stdout}{done.stderr}")


def told(report: dict[str, Any]) -> str:
    """Return a report as text for people."""
    lines = [
        f"{report['incidents']} incidents: "
        + ", ".join(f"{count} x {name}" for name, count in report["happened"].items()),
        f"facts: {report['facts_acknowledged']} acknowledged, {len(report['facts_lost'])} lost, "
        f"{len(report['facts_doubled'])} doubled",
        f"executions: {report['executions_acknowledged']} acknowledged, {len(report['executions_unended'])} did not end, "
        f"{len(report['executions_failed'])} did not complete, {report['executions_unasked']} that nobody asked for",
        f"runs of the DAG: {report['runs_acknowledged']} acknowledged, {len(report['runs_unended'])} not completed",
        f"noetl verify --all --payloads: exit {report['verify']}",
    ]
    for execution_id, error in report["executions_failed"].items():
        lines.append(f"  execution {execution_id}: {error}")
    if report["verify"]:
        lines.append(report["verify_said"])
    if report["killed_in_grace"]:
        lines.append(f"did not end when asked: {', '.join(report['killed_in_grace'])}")
    lines.append("everything held" if report["holds"] else "NOT everything held")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
