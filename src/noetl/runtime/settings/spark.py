"""The settings of Spark and of the lake, and what a Spark driver is told of them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from noetl.runtime.settings.types import Count, HttpUrl, Location, SecretText, Section, Text
from noetl.spark.session.options import SparkOptions, kind_of

_SCHEMES = ("s3://", "gs://", "az://")


def _pairs(given: tuple[SecretText, ...]) -> tuple[SecretText, ...]:
    for one in given:
        name, equals, _ = one.get_secret_value().partition("=")
        if not equals or not name.strip():
            raise PydanticCustomError("pair", "must be of the form name=value")
    return given


def _master(given: str) -> str:
    if not (given.startswith("local") or kind_of(given) != "local"):
        raise PydanticCustomError("master", "must be local[*], spark://…, k8s://…, yarn or sc://…")
    return given


def _memory(given: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]*[mg]", given):
        raise PydanticCustomError("memory", "must be a size such as 2g or 512m")
    return given


Pairs = Annotated[tuple[SecretText, ...], AfterValidator(_pairs)]
"""Entries `name=value`; values may be secret, so none is shown."""


class Spark(Section):
    """Where Spark runs and how much of this machine it takes; it is started by the first task that needs it."""

    master: Annotated[Text, AfterValidator(_master)] = Field(
        default="local[*]",
        description="Where Spark runs: local[*], spark://host:port, k8s://…, yarn, or sc://host:port.",
    )
    isolation: Literal["organization", "none"] = Field(
        default="organization", description="Whether organizations have Spark driver processes of their own."
    )
    drivers: Count = Field(default=2, description="Spark driver processes a worker may have at a time.")
    driver_memory: Annotated[Text, AfterValidator(_memory)] = Field(
        default="2g", description="Heap of one Spark driver, such as 2g or 512m."
    )
    conf: Pairs = Field(default=(), description="Further settings of Spark, each as name=value.")
    archive: bool = Field(
        default=True, description="Whether an archive of Spark's classes is made once, so that it starts quicker."
    )
    cache_directory: Location | None = Field(
        default=None, description="Directory of that archive (180 MB); null is `noetl/spark` in the user's cache."
    )
    pack: Location | None = Field(
        default=None, description="Environment for a cluster's executors, as `noetl spark pack` makes it."
    )
    start_seconds: float = Field(
        default=120.0, gt=0, allow_inf_nan=False, description="Seconds Spark may take to start."
    )

    @property
    def cache(self) -> Path:
        """Where the class-data archive and the Java shim are."""
        above = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return self.cache_directory or Path(above, "noetl", "spark").expanduser()


class LakeSettings(Section):
    """Where the files of datasets are."""

    location: Text | None = Field(
        default=None, description="Directory, or s3://, gs:// or az:// address; null is `lake` in `runtime.home`."
    )
    connector: bool = Field(
        default=False,
        description="Whether Spark has connector jars for the address and reads and writes it itself; directories need none.",
    )
    endpoint: HttpUrl | None = Field(
        default=None, description="Address of the object store; null is the provider's own."
    )
    region: Text | None = Field(default=None, description="Region of the bucket.")
    access_key: Text | None = Field(
        default=None, description="Access key, or account name in Azure; null uses the provider's own credential chain."
    )
    secret_key: SecretText | None = Field(default=None, description="Secret that belongs to the access key.")
    allow_http: bool = Field(default=False, description="Whether an endpoint without TLS may be used.")
    options: Pairs = Field(default=(), description="Further options of the object store, each as name=value.")

    def store_options(self) -> dict[str, str]:
        """Return what the object store is told, under the names of its own options."""
        azure = (self.location or "").startswith("az://")
        named: dict[str, str | None] = {
            "endpoint": self.endpoint.get_secret_value() if self.endpoint else None,
            "region": self.region or ("us-east-1" if self.endpoint and not azure else None),
            "account_name" if azure else "access_key_id": self.access_key,
            "account_key" if azure else "secret_access_key": self.secret_key.get_secret_value()
            if self.secret_key
            else None,
            "allow_http": "true" if self.allow_http else None,
        }
        return {name: value for name, value in named.items() if value is not None} | split(self.options)


def spark_options(spark: Spark, lake: LakeSettings, home: Path) -> SparkOptions:
    """Return what a driver under this home is told."""
    remote = (lake.location or "").startswith(_SCHEMES)
    return SparkOptions(
        home=str((home / "spark").absolute()),
        cache=str(spark.cache.absolute()),
        master=spark.master,
        memory=spark.driver_memory,
        conf=split(spark.conf),
        archive=spark.archive,
        pack=str(spark.pack.absolute()) if spark.pack else None,
        lake_root=(lake.location or "") if remote else str(Path(lake.location or home / "lake").absolute()),
        lake_options=lake.store_options() if remote else {},
        lake_native=lake.connector or not remote,
        start_seconds=spark.start_seconds,
    )


def split(pairs: tuple[SecretText, ...]) -> dict[str, str]:
    """Return entries `name=value` as a mapping."""
    parts = (one.get_secret_value().partition("=") for one in pairs)
    return {name.strip(): value.strip() for name, _, value in parts}
