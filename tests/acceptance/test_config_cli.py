"""`noetl config` as a user meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from noetl.cli.config import config
from noetl.errors import ConfigError

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str, **environ: str) -> Result:
        with monkeypatch.context() as patch:
            for name in list(os.environ):
                if name.startswith("NOETL_"):
                    patch.delenv(name)
            return CliRunner().invoke(config, list(arguments), env=environ)

    return invoke


def test_show_prints_every_section_with_secrets_masked(run: Run) -> None:
    result = run("show", NOETL_DATABASE_URL="postgresql://u:hunter2@h/x")
    assert result.exit_code == 0
    assert "  url: postgresql://u:***@h/x\n" in result.output
    assert "hunter2" not in result.output
    assert "materializations: {}\n" in result.output
    assert "#" not in result.output


def test_show_origin_says_where_each_given_value_came_from(run: Run) -> None:
    Path("noetl.yaml").write_text("database:\n  pool_max: 7\n")
    result = run("show", "--origin", NOETL_TENANT_ID="acme")
    assert "  pool_max: 7      # noetl.yaml:2:13\n" in result.output
    assert "  tenant_id: acme  # NOETL_TENANT_ID\n" in result.output
    assert result.output.count("#") == 2


def test_show_origin_with_defaults_only_adds_nothing(run: Run) -> None:
    assert run("show", "--origin").output == run("show").output


def test_what_show_prints_is_a_valid_configuration(run: Run) -> None:
    given = {"NOETL_PAYLOAD_STORE__CONNECTION__PREFIX": "a: ${b}", "NOETL_NODE_ID": "fd00::1"}
    shown = run("show", **given).output
    Path("copy.yaml").write_text(shown)
    assert run("show", "--config", "copy.yaml").output == shown


def test_show_json_holds_settings_and_origins(run: Run) -> None:
    shown = json.loads(run("show", "--json", NOETL_DATABASE_URL="postgresql://u:hunter2@h/x").output)
    assert shown["settings"]["database"]["url"] == "postgresql://u:***@h/x"
    assert shown["settings"]["payload_store"]["threshold_bytes"] == 65536
    assert shown["origins"] == {"database.url": "NOETL_DATABASE_URL"}
    assert shown["durability"] is None, "an event in PostgreSQL is durable, and nothing needs to be said"


@pytest.mark.parametrize("synced", ["false", "true"])
def test_show_says_what_may_be_lost_to_people_and_programs(synced: str, run: Run) -> None:
    given = {
        "NOETL_EVENT_STORE__WRITE_PATH": "stream",
        "NOETL_EVENT_STORE__DISTRIBUTION_BACKEND": "nats-jetstream",
        "NOETL_EVENT_STORE__CONNECTION__URL": "nats://nats:4222",
        "NOETL_EVENT_STORE__CONNECTION__SYNC_INTERVAL_ALWAYS": synced,
    }
    said = json.loads(run("show", "--json", **given).output)["durability"]
    assert ("synced to disk as the operator says" if synced == "true" else "can lose up to two minutes") in said
    assert run("show", **given).output.endswith(f"\n# {said}\n")


def test_show_leaves_an_invalid_configuration_to_the_error_printer(run: Run) -> None:
    assert isinstance(run("show", NOETL_WORKER__SLOTS="x").exception, ConfigError)


def test_check_accepts_a_valid_file(run: Run) -> None:
    Path("mine.yaml").write_text("runtime: {tenant_id: a}")
    result = run("check", "mine.yaml")
    assert (result.exit_code, result.output) == (0, "No problems in mine.yaml.\n")


def test_check_without_a_file_checks_the_environment(run: Run) -> None:
    result = run("check")
    assert (result.exit_code, result.output) == (0, "No problems in defaults and environment.\n")


def test_check_prints_all_problems_and_exits_with_2(run: Run) -> None:
    Path("noetl.yaml").write_text("databse: {}\ndatabase: {pool_max: x}\n")
    result = run("check")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "noetl.yaml:1:1: databse: is not a setting (did you mean database?)",
        "noetl.yaml:2:22: database.pool_max: must be a whole number, not 'x'",
        "2 problems.",
    ]


def test_check_counts_one_problem_in_the_singular(run: Run) -> None:
    assert run("check", "absent.yaml").stderr.splitlines()[-1] == "1 problem."


def test_check_json_lists_problems_for_programs(run: Run) -> None:
    result = run("check", "--json", NOETL_WORKER__SLOTS="x")
    assert result.exit_code == 2
    assert json.loads(result.stdout) == {
        "valid": False,
        "problems": [
            {
                "path": "worker.slots",
                "message": "must be a whole number, not 'x'",
                "source": "NOETL_WORKER__SLOTS",
                "line": None,
                "column": None,
                "hint": None,
            }
        ],
    }
    assert json.loads(run("check", "--json").stdout) == {"valid": True, "problems": []}


def test_reference_prints_the_page_of_all_settings(run: Run) -> None:
    output = run("reference").output
    assert output.startswith("# Configuration\n")
    assert "| `payload_store.cache.tier_1_memory_mb` |" in output


def test_importing_the_commands_imports_no_settings() -> None:
    code = "import sys, noetl.cli.config; print(sorted({'pydantic', 'ruamel.yaml'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
