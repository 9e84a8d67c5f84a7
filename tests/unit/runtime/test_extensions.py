"""The user's own folds and upcasters are found by name, and mistakes are named with their setting."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from noetl.errors import ConfigError, InputError
from noetl.runtime.extensions import load_folds, load_upcasters

MODULE = """
from noetl.kernel.projections.folds.business_object import business_object

@business_object("invoice", events=["business.invoice.posted"])
def invoice(row, event):
    return {"posted": True}

def not_a_fold(row, event):
    return row

def register(upcasters):
    upcasters.register("business.invoice.posted", 1, lambda event: event)

def register_with_a_gap(upcasters):
    upcasters.register("business.invoice.posted", 2, lambda event: event)
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A project folder with a module of the user's."""
    (tmp_path / "my_folds.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("my_folds", None)


def test_a_fold_is_found_beside_the_settings() -> None:
    projections = [fold.projection for fold in load_folds(["my_folds:invoice"]).folds()]
    assert "business_object/invoice" in projections
    assert "execution" in projections


def test_upcasters_are_registered_by_the_users_function() -> None:
    assert load_upcasters(["my_folds:register"]).digest() != load_upcasters([]).digest()


def test_a_gap_between_upcasters_is_refused() -> None:
    with pytest.raises(InputError, match="version 1"):
        load_upcasters(["my_folds:register_with_a_gap"])


def test_what_is_no_fold_is_refused() -> None:
    with pytest.raises(InputError, match="is not a fold"):
        load_folds(["my_folds:not_a_fold"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_folds", "not of the form module:name"),
        ("no_such_module:fold", "cannot be imported"),
        ("my_folds:missing", "has no 'missing'"),
    ],
)
def test_a_name_that_leads_nowhere_is_explained(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as problem:
        load_folds([name])
    assert "projections.business_objects" in str(problem.value)
