"""A policy is what the settings say, but for what the organization decided itself; nonsense is refused with a hint."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.errors import InputError
from noetl.runtime.settings.declaration import Settings
from noetl.services.retention.policy import NAMES, Policy, changed, effective


def test_the_settings_have_a_default_for_all_that_has_no_place_of_its_own() -> None:
    defaults = Settings().retention.policy()
    assert NAMES - defaults.keys() == {"payload_grace_hours", "archive_months"}
    assert effective(defaults, {}) == Policy(), "the settings and the policy say the same where nobody decided"


def test_what_an_organization_decides_goes_before_the_settings() -> None:
    own = changed({}, {"as_of_days": "30", "automatic": "true", "outbox_days": "forever"})
    found = effective({"as_of_days": 7, "slot_days": 1}, own)
    assert (found.as_of_days, found.automatic, found.outbox_days, found.slot_days) == (30, True, None, 1)
    assert changed(own, {"as_of_days": "default", "outbox_days": "default"}) == {"automatic": True}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"as_of_day": "3"}, "as_of_day"),
        ({"as_of_days": "soon"}, "cannot be 'soon'"),
        ({"as_of_days": "-1"}, "no retention policy"),
        ({"archive_months": "0"}, "no retention policy"),
        ({"keep_generations": "forever"}, "no retention policy"),
        ({"automatic": "7"}, "no retention policy"),
        ({"as_of_days": "true"}, "no retention policy"),
    ],
)
def test_nonsense_is_refused(changes: dict[str, str], told: str) -> None:
    with pytest.raises(InputError, match=told):
        changed({}, changes)


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError) as problem:
        changed({}, {"as_of_day": "3"})
    assert problem.value.hint == "did you mean as_of_days?"


def test_a_stored_policy_that_nobody_knows_is_an_error() -> None:
    own: dict[str, Any] = {"keep": 3}
    with pytest.raises(InputError, match="no retention policy"):
        effective({}, own)
