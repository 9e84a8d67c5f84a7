"""Works and bundles for the modes of Spark: the same jobs as the driver's own tests run."""

from __future__ import annotations

from tests.unit.spark.drivers.conftest import scripted_bundle, scripted_options, work

__all__ = ["scripted_bundle", "scripted_options", "work"]
