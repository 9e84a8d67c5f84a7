CREATE OR REPLACE FUNCTION noetl.apply_open_work(
    p_tenant text, p_organization text, p_work text[], p_now timestamptz, e_written boolean[], e_execution bigint[],
    e_event bigint[], e_time timestamptz[], e_parent bigint[], e_stage bigint[], e_frame bigint[], e_loop bigint[],
    e_index bigint[], e_type text[], e_catalog text[], e_node text[], e_command text[], e_shard_id text[],
    e_meta json[], e_context json[], e_payload_ref json[]
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    said    text;
    meta    json;
    context json;
    runs    bigint[] := '{}';
    facts   bigint[] := '{}';
BEGIN
    -- Event by event, in their order: a transition is a handful of events, and one row may change twice in it.
    FOR number IN 1..cardinality(e_type) LOOP
        said := e_type[number];
        CONTINUE WHEN NOT e_written[number] OR NOT said = ANY (p_work);
        meta := coalesce(e_meta[number], '{}');
        CASE said
        WHEN 'command.issued' THEN
            INSERT INTO noetl.command (tenant_id, organization_id, execution_id, command_id, step_name, tool_kind,
                status, attempt, worker, lease_token, lease_seconds, lease_until, last_heartbeat, available_at,
                stage_id, loop_id, child_execution_id, issued_event_id, near)
            VALUES (p_tenant, p_organization, e_execution[number], e_command[number], e_node[number],
                meta ->> 'tool_kind',
                CASE WHEN meta ->> 'worker' IS NOT NULL THEN 'CLAIMED'
                     WHEN meta ->> 'child_execution_id' IS NOT NULL THEN 'SUSPENDED' ELSE 'PENDING' END,
                coalesce((meta ->> 'attempt')::integer, 0), meta ->> 'worker', (meta ->> 'lease_token')::uuid,
                (meta ->> 'lease_seconds')::double precision,
                CASE WHEN meta ->> 'worker' IS NOT NULL
                     THEN p_now + make_interval(secs => (meta ->> 'lease_seconds')::double precision) END,
                CASE WHEN meta ->> 'worker' IS NOT NULL THEN p_now END,
                p_now, e_stage[number], e_loop[number], (meta ->> 'child_execution_id')::bigint, e_event[number], (meta ->> 'near')::jsonb);
        WHEN 'command.claimed' THEN
            UPDATE noetl.command SET status = 'CLAIMED', attempt = (meta ->> 'attempt')::integer,
                worker = meta ->> 'worker', lease_token = (meta ->> 'lease_token')::uuid, last_heartbeat = p_now,
                lease_until = p_now + make_interval(secs => lease_seconds)
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e_execution[number]
              AND command_id = e_command[number];
        WHEN 'command.abandoned', 'command.attempt_failed' THEN
            UPDATE noetl.command SET status = 'PENDING', worker = NULL, lease_token = NULL, lease_until = NULL,
                last_heartbeat = NULL,
                available_at = p_now + make_interval(secs => coalesce((meta ->> 'delay_seconds')::double precision, 0))
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e_execution[number]
              AND command_id = e_command[number];
        WHEN 'command.completed', 'command.failed' THEN
            DELETE FROM noetl.command
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e_execution[number]
              AND command_id = e_command[number];
        WHEN 'frame.dispatched', 'loop.shard.enqueued' THEN
            IF (meta ->> 'attempt')::integer > 1 THEN
                UPDATE noetl.frame SET status = 'LEASED', attempt = (meta ->> 'attempt')::integer,
                    worker = meta ->> 'worker', command_id = e_command[number],
                    lease_token = (meta ->> 'lease_token')::uuid, last_heartbeat = p_now,
                    lease_until = p_now + make_interval(secs => lease_seconds)
                WHERE tenant_id = p_tenant AND organization_id = p_organization
                  AND execution_id = e_execution[number] AND frame_id = e_frame[number];
                CONTINUE;
            END IF;
            UPDATE noetl.stage SET frames_minted = frames_minted + 1, frames_open = frames_open + 1,
                next_index = greatest(next_index, coalesce(e_index[number], 0) + (meta ->> 'row_count')::integer)
            WHERE tenant_id = p_tenant AND organization_id = p_organization
              AND execution_id = e_execution[number] AND stage_id = e_stage[number];
            -- A stage that was closed meanwhile hands out no lease: without a row every fence of this frame is broken.
            CONTINUE WHEN NOT FOUND;
            INSERT INTO noetl.frame (tenant_id, organization_id, execution_id, frame_id, stage_id, loop_id,
                shard_id, status, frame_index, first_index, row_count, attempt, worker, command_id, lease_token,
                lease_seconds, lease_until, last_heartbeat, input_ref)
            VALUES (p_tenant, p_organization, e_execution[number], e_frame[number], e_stage[number], e_loop[number],
                e_shard_id[number], 'LEASED', (meta ->> 'frame_index')::bigint,
                coalesce(e_index[number], 0), (meta ->> 'row_count')::integer, (meta ->> 'attempt')::integer,
                meta ->> 'worker', e_command[number], (meta ->> 'lease_token')::uuid,
                (meta ->> 'lease_seconds')::double precision,
                p_now + make_interval(secs => (meta ->> 'lease_seconds')::double precision), p_now,
                e_payload_ref[number]::jsonb);
        WHEN 'frame.abandoned', 'frame.attempt_failed', 'loop.shard.abandoned', 'loop.shard.attempt_failed' THEN
            UPDATE noetl.frame SET status = 'FREE', worker = NULL, command_id = NULL, lease_token = NULL,
                lease_until = NULL, last_heartbeat = NULL
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e_execution[number]
              AND frame_id = e_frame[number];
        WHEN 'frame.checkpointed' THEN
            UPDATE noetl.frame SET checkpoint = (e_context[number] -> 'cursor')::jsonb
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e_execution[number]
              AND frame_id = e_frame[number];
        WHEN 'frame.committed', 'frame.failed', 'loop.shard.done', 'loop.shard.failed' THEN
            DELETE FROM noetl.frame
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e_execution[number]
              AND frame_id = e_frame[number];
            context := coalesce(e_context[number], '{}');
            UPDATE noetl.stage SET frames_open = frames_open - 1,
                frames_failed = frames_failed + (said IN ('frame.failed', 'loop.shard.failed'))::integer,
                rows_done = rows_done + CASE WHEN said IN ('frame.failed', 'loop.shard.failed') THEN 0
                    ELSE (meta ->> 'row_count')::bigint - coalesce((meta ->> 'failed_count')::bigint, 0) END,
                rows_failed = rows_failed + CASE WHEN said IN ('frame.failed', 'loop.shard.failed')
                    THEN (meta ->> 'row_count')::bigint ELSE coalesce((meta ->> 'failed_count')::bigint, 0) END,
                errors = errors + coalesce((meta ->> 'swallowed')::bigint, 0),
                ctx = ctx || coalesce((context ->> 'set')::jsonb, '{}')
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e_execution[number]
              AND stage_id = e_stage[number];
        WHEN 'stage.opened' THEN
            context := coalesce(e_context[number], '{}');
            INSERT INTO noetl.stage (tenant_id, organization_id, execution_id, stage_id, loop_id, step_name, kind,
                total_rows, frame_policy)
            VALUES (p_tenant, p_organization, e_execution[number], e_stage[number], e_loop[number], e_node[number],
                meta ->> 'kind', (meta ->> 'total_rows')::bigint, coalesce(context ->> 'frame_policy', '{}')::jsonb);
        WHEN 'stage.closed' THEN
            DELETE FROM noetl.frame WHERE tenant_id = p_tenant AND organization_id = p_organization
                AND execution_id = e_execution[number] AND stage_id = e_stage[number];
            DELETE FROM noetl.stage WHERE tenant_id = p_tenant AND organization_id = p_organization
                AND execution_id = e_execution[number] AND stage_id = e_stage[number];
        WHEN 'execution.requested' THEN
            -- Only playbooks are driven step by step; the run of a DAG is what its tasks are.
            CONTINUE WHEN meta ->> 'playbook_digest' IS NULL;
            INSERT INTO noetl.execution_head (tenant_id, organization_id, execution_id, parent_execution_id,
                parent_command_id, catalog_id, path, requested_at)
            VALUES (p_tenant, p_organization, e_execution[number], e_parent[number], meta ->> 'parent_command_id',
                e_catalog[number], meta ->> 'path', e_time[number]);
        WHEN 'dag.activated', 'dag.build_failed', 'dag.ready', 'dag.rolled_back', 'dag.version_created',
             'dataset.generation_created', 'dataset.registered', 'dataset.schema_set', 'job.registered',
             'job.state_saved', 'org.created', 'org.settings_changed', 'partition.committed', 'partition.dropped',
             'role.created', 'role.granted', 'role.revoked', 'task.abandoned', 'task.attempt_failed',
             'task.cancel_requested', 'task.cancelled', 'task.claimed', 'task.completed', 'task.created',
             'task.failed', 'task.retried', 'task.skipped', 'task.started', 'user.added', 'user.removed',
             'user.role_changed' THEN
            runs := runs || e_execution[number];
            facts := facts || e_event[number];
        ELSE -- the execution has ended, and with it everything that was open
            DELETE FROM noetl.command WHERE tenant_id = p_tenant AND organization_id = p_organization
                AND execution_id = e_execution[number];
            DELETE FROM noetl.frame WHERE tenant_id = p_tenant AND organization_id = p_organization
                AND execution_id = e_execution[number];
            DELETE FROM noetl.stage WHERE tenant_id = p_tenant AND organization_id = p_organization
                AND execution_id = e_execution[number];
            DELETE FROM noetl.execution_head WHERE tenant_id = p_tenant AND organization_id = p_organization
                AND execution_id = e_execution[number];
        END CASE;
    END LOOP;
    IF cardinality(facts) > 0 THEN
        PERFORM noetl.apply_pipelines(p_tenant, p_organization, runs, facts);
    END IF;
END
$$;
COMMENT ON FUNCTION noetl.apply_open_work IS 'Changes the rows of open work as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_open_work FROM PUBLIC;
