"""What a driver is told of the settings, and which settings are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.errors import ConfigError
from noetl.runtime.config import load_settings
from noetl.runtime.settings.spark import spark_options
from noetl.spark.session.options import SparkOptions, kind_of
from noetl.spark.session.session import configuration, is_loopback


def told(**variables: str) -> SparkOptions:
    settings = load_settings(environ={"NOETL_HOME": "/srv/noetl"} | variables)
    return spark_options(settings.spark, settings.lake, settings.runtime.home)


def test_without_settings_spark_is_local_and_the_lake_in_the_home() -> None:
    options = told(NOETL_SPARK__CACHE_DIRECTORY="/var/cache/noetl")
    assert (options.master, options.kind, options.home) == ("local[*]", "local", "/srv/noetl/spark")
    assert (options.lake_root, options.lake_native, options.lake_options) == ("/srv/noetl/lake", True, {})
    assert options.cache == "/var/cache/noetl"


def test_an_object_store_is_told_its_options_under_their_own_names() -> None:
    options = told(
        NOETL_LAKE__LOCATION="s3://bucket/lake",
        NOETL_LAKE__ENDPOINT="http://127.0.0.1:8333",
        NOETL_LAKE__ACCESS_KEY="me",
        NOETL_LAKE__SECRET_KEY="hidden",
        NOETL_LAKE__ALLOW_HTTP="true",
        NOETL_LAKE__OPTIONS="virtual_hosted_style_request=false",
    )
    assert (options.lake_root, options.lake_native) == ("s3://bucket/lake", False)
    assert options.lake_options == {
        "endpoint": "http://127.0.0.1:8333",
        "region": "us-east-1",
        "access_key_id": "me",
        "secret_access_key": "hidden",
        "allow_http": "true",
        "virtual_hosted_style_request": "false",
    }


def test_what_users_set_stands_over_our_choice_but_not_over_what_all_sessions_share() -> None:
    options = told(NOETL_SPARK__CONF="spark.ui.enabled=true, spark.sql.session.timeZone=Europe/Rome")
    settings = configuration(options, Path("/scratch"))
    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.sql.session.timeZone"] == "UTC"
    assert settings["spark.local.dir"] == "/scratch/local"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("NOETL_SPARK__MASTER", "mesos://host", "must be local"),
        ("NOETL_SPARK__DRIVER_MEMORY", "lots", "such as 2g"),
        ("NOETL_SPARK__CONF", "spark.ui.enabled", "name=value"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(variable: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        told(**{variable: value})


@pytest.mark.parametrize(
    ("master", "kind", "loopback"),
    [
        ("local[2]", "local", True),
        ("spark://127.0.0.1:7077", "standalone", True),
        ("spark://cluster:7077", "standalone", False),
        ("k8s://https://host:6443", "kubernetes", False),
        ("yarn", "yarn", False),
        ("sc://localhost:15002", "connect", True),
    ],
)
def test_the_address_tells_the_mode(master: str, kind: str, loopback: bool) -> None:
    assert (kind_of(master), is_loopback(master)) == (kind, loopback)
