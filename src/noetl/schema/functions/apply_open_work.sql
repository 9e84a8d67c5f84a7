CREATE OR REPLACE FUNCTION noetl.apply_open_work(
    p_tenant text, p_organization text, p_types text[], p_now timestamptz, events noetl.new_event[]
) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    e       noetl.new_event;
    said    text;
    meta    json;
    context json;
    has_failed boolean;
BEGIN
    -- Event by event, in their order: a transition is a handful of events, and one row may change twice in it.
    FOREACH e IN ARRAY events LOOP
        said := e.event_type;
        CONTINUE WHEN said <> ALL (p_types);
        meta := coalesce(e.meta, '{}');
        CASE said
        WHEN 'command.issued' THEN
            INSERT INTO noetl.command (tenant_id, organization_id, execution_id, command_id, step_name, tool_kind,
                status, attempt, worker, lease_token, lease_seconds, lease_until, last_heartbeat, available_at,
                stage_id, loop_id, child_execution_id, issued_event_id, near)
            SELECT p_tenant, p_organization, e.execution_id, e.command_id, e.node_name, own.tool_kind,
                CASE WHEN own.worker IS NOT NULL THEN 'CLAIMED'
                     WHEN own.child_execution_id IS NOT NULL THEN 'SUSPENDED' ELSE 'PENDING' END,
                coalesce(own.attempt, 0), own.worker, own.lease_token, own.lease_seconds,
                CASE WHEN own.worker IS NOT NULL THEN p_now + make_interval(secs => own.lease_seconds) END,
                CASE WHEN own.worker IS NOT NULL THEN p_now END,
                p_now, e.stage_id, e.loop_id, own.child_execution_id, e.event_id, own.near
            FROM json_to_record(meta) AS own (tool_kind text, worker text, attempt integer, lease_token uuid,
                lease_seconds double precision, child_execution_id bigint, near jsonb);
        WHEN 'command.claimed' THEN
            UPDATE noetl.command SET status = 'CLAIMED', attempt = (meta ->> 'attempt')::integer,
                worker = meta ->> 'worker', lease_token = (meta ->> 'lease_token')::uuid, last_heartbeat = p_now,
                lease_until = p_now + make_interval(secs => lease_seconds)
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e.execution_id
              AND command_id = e.command_id;
        WHEN 'command.abandoned', 'command.attempt_failed', 'command.returned' THEN
            UPDATE noetl.command SET status = 'PENDING', worker = NULL, lease_token = NULL, lease_until = NULL,
                last_heartbeat = NULL,
                available_at = p_now + make_interval(secs => coalesce((meta ->> 'delay_seconds')::double precision, 0))
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e.execution_id
              AND command_id = e.command_id;
        WHEN 'command.completed', 'command.failed' THEN
            DELETE FROM noetl.command
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e.execution_id
              AND command_id = e.command_id;
        WHEN 'frame.dispatched', 'loop.shard.enqueued' THEN
            IF (meta ->> 'attempt')::integer > 1 THEN
                UPDATE noetl.frame SET status = 'LEASED', attempt = (meta ->> 'attempt')::integer,
                    worker = meta ->> 'worker', command_id = e.command_id,
                    lease_token = (meta ->> 'lease_token')::uuid, last_heartbeat = p_now,
                    lease_until = p_now + make_interval(secs => lease_seconds)
                WHERE tenant_id = p_tenant AND organization_id = p_organization
                  AND execution_id = e.execution_id AND frame_id = e.frame_id;
                CONTINUE;
            END IF;
            UPDATE noetl.stage SET frames_minted = frames_minted + 1, frames_open = frames_open + 1,
                next_index = greatest(next_index, coalesce(e.current_index, 0) + (meta ->> 'row_count')::integer)
            WHERE tenant_id = p_tenant AND organization_id = p_organization
              AND execution_id = e.execution_id AND stage_id = e.stage_id;
            -- A stage that was closed meanwhile hands out no lease: without a row every fence of this frame is broken.
            CONTINUE WHEN NOT FOUND;
            INSERT INTO noetl.frame (tenant_id, organization_id, execution_id, frame_id, stage_id, loop_id,
                shard_id, status, frame_index, first_index, row_count, attempt, worker, command_id, lease_token,
                lease_seconds, lease_until, last_heartbeat, input_ref)
            VALUES (p_tenant, p_organization, e.execution_id, e.frame_id, e.stage_id, e.loop_id,
                e.shard_id, 'LEASED', (meta ->> 'frame_index')::bigint,
                coalesce(e.current_index, 0), (meta ->> 'row_count')::integer, (meta ->> 'attempt')::integer,
                meta ->> 'worker', e.command_id, (meta ->> 'lease_token')::uuid,
                (meta ->> 'lease_seconds')::double precision,
                p_now + make_interval(secs => (meta ->> 'lease_seconds')::double precision), p_now,
                e.payload_ref::jsonb);
        WHEN 'frame.abandoned', 'frame.attempt_failed', 'loop.shard.abandoned', 'loop.shard.attempt_failed' THEN
            UPDATE noetl.frame SET status = 'FREE', worker = NULL, command_id = NULL, lease_token = NULL,
                lease_until = NULL, last_heartbeat = NULL
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e.execution_id
              AND frame_id = e.frame_id;
        WHEN 'frame.checkpointed' THEN
            UPDATE noetl.frame SET checkpoint = (e.context -> 'cursor')::jsonb
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e.execution_id
              AND frame_id = e.frame_id;
        WHEN 'frame.committed', 'frame.failed', 'loop.shard.done', 'loop.shard.failed' THEN
            DELETE FROM noetl.frame
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e.execution_id
              AND frame_id = e.frame_id;
            context := coalesce(e.context, '{}');
            has_failed := said IN ('frame.failed', 'loop.shard.failed');
            UPDATE noetl.stage SET frames_open = frames_open - 1,
                frames_failed = frames_failed + has_failed::integer,
                rows_done = rows_done + CASE WHEN has_failed THEN 0
                    ELSE (meta ->> 'row_count')::bigint - coalesce((meta ->> 'failed_count')::bigint, 0) END,
                rows_failed = rows_failed + CASE WHEN has_failed THEN (meta ->> 'row_count')::bigint
                    ELSE coalesce((meta ->> 'failed_count')::bigint, 0) END,
                errors = errors + coalesce((meta ->> 'swallowed')::bigint, 0),
                ctx = ctx || coalesce((context ->> 'set')::jsonb, '{}')
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e.execution_id
              AND stage_id = e.stage_id;
        WHEN 'stage.opened' THEN
            context := coalesce(e.context, '{}');
            INSERT INTO noetl.stage (tenant_id, organization_id, execution_id, stage_id, loop_id, step_name, kind,
                total_rows, frame_policy)
            VALUES (p_tenant, p_organization, e.execution_id, e.stage_id, e.loop_id, e.node_name,
                meta ->> 'kind', (meta ->> 'total_rows')::bigint, coalesce(context ->> 'frame_policy', '{}')::jsonb);
        WHEN 'stage.closed' THEN
            DELETE FROM noetl.frame WHERE tenant_id = p_tenant AND organization_id = p_organization
                AND execution_id = e.execution_id AND stage_id = e.stage_id;
            DELETE FROM noetl.stage WHERE tenant_id = p_tenant AND organization_id = p_organization
                AND execution_id = e.execution_id AND stage_id = e.stage_id;
        WHEN 'execution.requested' THEN
            -- Only playbooks are driven step by step; the run of a DAG is what its tasks are.
            CONTINUE WHEN meta ->> 'playbook_digest' IS NULL;
            INSERT INTO noetl.execution_head (tenant_id, organization_id, execution_id, parent_execution_id,
                parent_command_id, catalog_id, path, requested_at, deadline)
            VALUES (p_tenant, p_organization, e.execution_id, e.parent_execution_id, meta ->> 'parent_command_id',
                e.catalog_id, meta ->> 'path', e.event_time,
                e.event_time + make_interval(secs => (meta ->> 'limit_seconds')::double precision));
        WHEN
            -- begin generated: types that end an execution
            'execution.cancelled', 'execution.completed', 'execution.failed', 'playbook.completed', 'playbook.failed',
            'workflow.completed', 'workflow.failed'
            -- end generated
        THEN
            -- The execution has ended, and with it everything that was open.
            DELETE FROM noetl.command WHERE tenant_id = p_tenant AND organization_id = p_organization
                AND execution_id = e.execution_id;
            DELETE FROM noetl.frame WHERE tenant_id = p_tenant AND organization_id = p_organization
                AND execution_id = e.execution_id;
            DELETE FROM noetl.stage WHERE tenant_id = p_tenant AND organization_id = p_organization
                AND execution_id = e.execution_id;
            DELETE FROM noetl.execution_head WHERE tenant_id = p_tenant AND organization_id = p_organization
                AND execution_id = e.execution_id;
        ELSE
            RAISE case_not_found USING MESSAGE = format('no rule says what becomes of open work after %s', said);
        END CASE;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.apply_open_work IS 'Changes the rows of open work as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_open_work FROM PUBLIC;
