"""Playbooks that the acceptance tests run on PostgreSQL, run once more on the engine in memory: the same tests, no server.

Those that are left out need a database of the user's, credentials, an API, or look into the tables themselves.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.acceptance.playbooks import test_children as children
from tests.acceptance.playbooks import test_detached as detached
from tests.acceptance.playbooks import test_endings as endings
from tests.acceptance.playbooks import test_loops as loops
from tests.acceptance.playbooks import test_policies as policies
from tests.acceptance.playbooks import test_results as results
from tests.acceptance.playbooks import test_tools as tools
from tests.acceptance.playbooks import test_values as values
from tests.acceptance.playbooks import test_workloads as workloads

from noetl.testing.engines.memory import MemoryPlaybooks, open_memory_playbooks

SHARED = (
    children.test_a_child_gives_its_result_or_that_of_the_step_asked_for,
    children.test_a_child_with_a_large_workload_gives_the_step_asked_for,
    children.test_a_child_that_fails_fails_its_step_with_the_reason,
    children.test_a_rerun_from_a_step_keeps_what_came_before_it,
    children.test_a_row_whose_child_fails_fails_alone,
    children.test_the_id_of_a_child_is_there_whatever_it_came_to,
    detached.test_a_parent_that_does_not_wait_gets_the_id_of_its_child_and_goes_on,
    detached.test_rows_may_start_children_nobody_waits_for,
    endings.test_a_failure_stops_what_runs_beside_it_and_the_final_step_still_runs,
    endings.test_values_that_cannot_be_recorded_fail_their_step,
    endings.test_what_takes_too_long_is_stopped,
    loops.test_a_fan_out_is_as_strict_as_it_says,
    loops.test_a_frame_whose_results_grow_too_large_goes_on_as_another,
    loops.test_a_sequential_loop_hands_shared_values_from_row_to_row_and_on,
    loops.test_a_shard_that_fails_is_tried_again_by_itself,
    loops.test_an_empty_collection_is_done_at_once,
    loops.test_every_frame_is_two_events,
    loops.test_frames_worked_off_as_one_are_tried_again_as_one,
    loops.test_frames_worked_off_as_one_have_one_result_each,
    loops.test_many_results_stand_behind_a_manifest_that_a_later_step_reads,
    loops.test_results_come_in_the_order_of_the_rows,
    loops.test_rows_that_fail_are_counted_and_named_and_arcs_decide,
    loops.test_rows_that_set_more_than_allowed_fail_and_are_told_why,
    loops.test_what_a_later_row_writes_over_is_gone,
    policies.test_a_field_that_no_error_has_fails_the_step,
    policies.test_arcs_of_a_loop_may_ask_for_every_field_of_its_error,
    policies.test_break_ends_the_sequence_well_and_fail_ends_it_badly,
    results.test_a_childs_large_results_are_its_parents,
    results.test_a_reference_is_read_and_given_back_in_every_form,
    results.test_a_result_stays_inline_up_to_its_limit,
    results.test_a_selection_that_leads_nowhere_fails_the_step,
    results.test_numbers_and_texts_of_all_kinds_come_back_as_they_are,
    results.test_results_are_gathered_over_the_runs_of_a_step,
    results.test_rows_that_came_to_much_are_fetched_by_their_reference,
    results.test_the_text_of_a_reference_is_looked_up_within_the_organization,
    results.test_what_the_rows_of_a_loop_came_to_is_read_the_same_wherever_it_stands,
    tools.test_artifacts_are_put_and_got_by_reference,
    tools.test_python_takes_code_in_its_three_forms,
    tools.test_workbook_tasks_take_input_of_their_caller,
    values.test_set_writes_to_every_scope_and_arcs_have_the_last_word,
    values.test_what_is_undefined_fails_its_step_and_is_named,
    workloads.test_a_child_whose_workload_cannot_be_rendered_is_an_error_of_its_step,
    values.test_a_request_is_merged_deep_over_the_workload,
    workloads.test_a_run_that_is_repeated_has_the_same_values,
    workloads.test_a_tool_gets_what_a_default_came_to_and_the_event_has_it,
    workloads.test_an_execution_under_a_key_has_its_values_once,
    workloads.test_children_render_their_own_defaults_with_their_own_ids,
    workloads.test_what_is_given_is_never_rendered,
)
globals().update({test.__name__: test for test in SHARED})


@pytest.fixture
async def playbooks(tmp_path: Path) -> AsyncIterator[MemoryPlaybooks]:
    async with open_memory_playbooks(tmp_path) as playbooks:
        yield playbooks
