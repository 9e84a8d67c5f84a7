"""Views of the user's own come from modules that the settings name; one without a rule is refused as it is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.errors import ConfigError
from noetl.runtime.extensions import load_curated_views
from noetl.services.curated.registry import CuratedViews
from noetl.services.curated.view import Uncurated

MODULE = """
from noetl.services.curated.facts import FAILURES
from noetl.services.curated.rules import Drop, Hash, Keep, Period
from noetl.services.curated.view import CuratedView

RULES = {"at": Period("day"), "what": Keep(), "problem": Drop(), "step": Hash(), "message": Drop()}
VIEW = CuratedView(name="steps", sentence="Steps that fail.", fact=FAILURES, rules=RULES, count="failures")
"""


def test_a_view_that_the_settings_name_is_among_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_curated_views.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    views = CuratedViews(load_curated_views(["own_curated_views:VIEW"]))
    assert views.get("steps").columns == ("at", "what", "step", "failures", "organizations")
    with pytest.raises(ConfigError, match=r"curated\.views: 'own_curated_views' has no 'GONE'"):
        load_curated_views(["own_curated_views:GONE"])


def test_a_view_that_leaves_a_field_out_is_refused_as_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-102."""
    (tmp_path / "open_curated_views.py").write_text(MODULE.replace(', "step": Hash()', ""))
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(Uncurated, match="curated view steps: field step of failures has no rule"):
        load_curated_views(["open_curated_views:VIEW"])
