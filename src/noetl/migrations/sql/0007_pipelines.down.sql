-- The append knows commands and frames alone, as before.
CREATE OR REPLACE FUNCTION noetl.broken_fences_v1(
    p_tenant text, p_organization text, f_group integer[], f_table text[], f_execution bigint[], f_id text[],
    f_attempt integer[], f_token uuid[], f_mode smallint[]
) RETURNS SETOF integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held  record;
    fits  boolean;
BEGIN
    FOR number IN 1..cardinality(f_group) LOOP
        IF f_table[number] = 'command' THEN
            SELECT status, attempt, lease_token, lease_until INTO held FROM noetl.command
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = f_execution[number]
              AND command_id = f_id[number] FOR UPDATE;
        ELSE
            SELECT status, attempt, lease_token, lease_until INTO held FROM noetl.frame
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = f_execution[number]
              AND frame_id = f_id[number]::bigint FOR UPDATE;
        END IF;
        fits := FOUND AND CASE f_mode[number]
            WHEN 1 THEN held.attempt = f_attempt[number] AND held.lease_token = f_token[number]
                        AND held.lease_until > clock_timestamp()
            WHEN 2 THEN held.attempt = f_attempt[number] AND held.lease_token = f_token[number]
                        AND held.lease_until <= clock_timestamp()
            ELSE held.attempt = f_attempt[number] AND held.lease_token IS NULL
        END;
        IF fits IS NOT TRUE THEN
            RETURN NEXT f_group[number];
        END IF;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION noetl.apply_work_v1(
    p_tenant text, p_organization text, p_work text[], p_now timestamptz, e_written boolean[],
    e_execution bigint[], e_event bigint[], e_time timestamptz[], e_parent bigint[], e_stage bigint[], e_frame bigint[],
    e_loop bigint[], e_index bigint[], e_type text[], e_catalog text[], e_node text[], e_command text[],
    e_shard_id text[], e_meta json[], e_context json[], e_payload_ref json[]
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    said    text;
    meta    json;
    context json;
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
                stage_id, loop_id, child_execution_id, issued_event_id)
            VALUES (p_tenant, p_organization, e_execution[number], e_command[number], e_node[number],
                meta ->> 'tool_kind',
                CASE WHEN meta ->> 'worker' IS NOT NULL THEN 'CLAIMED'
                     WHEN meta ->> 'child_execution_id' IS NOT NULL THEN 'SUSPENDED' ELSE 'PENDING' END,
                coalesce((meta ->> 'attempt')::integer, 0), meta ->> 'worker', (meta ->> 'lease_token')::uuid,
                (meta ->> 'lease_seconds')::double precision,
                CASE WHEN meta ->> 'worker' IS NOT NULL
                     THEN p_now + make_interval(secs => (meta ->> 'lease_seconds')::double precision) END,
                CASE WHEN meta ->> 'worker' IS NOT NULL THEN p_now END,
                p_now, e_stage[number], e_loop[number], (meta ->> 'child_execution_id')::bigint, e_event[number]);
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
            INSERT INTO noetl.execution_head (tenant_id, organization_id, execution_id, parent_execution_id,
                parent_command_id, catalog_id, path, requested_at)
            VALUES (p_tenant, p_organization, e_execution[number], e_parent[number], meta ->> 'parent_command_id',
                e_catalog[number], meta ->> 'path', e_time[number]);
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
END
$$;

CREATE OR REPLACE FUNCTION noetl.overtaken_v1(
    p_ending text[], f_group integer[], f_table text[], f_execution bigint[], f_id text[], a_group integer[],
    e_append integer[], e_execution bigint[], e_stage bigint[], e_frame bigint[], e_type text[], e_command text[]
) RETURNS TABLE (loser integer, winner integer)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY WITH said AS (
        SELECT a_group[e.append] AS grp, e.execution, e.stage, e.frame, e.type, e.command
        FROM unnest(e_append, e_execution, e_stage, e_frame, e_type, e_command)
             AS e (append, execution, stage, frame, type, command)
    ), changes AS (
        SELECT grp, execution, 'command' AS name, command AS id FROM said
        WHERE type IN ('command.claimed', 'command.abandoned', 'command.attempt_failed', 'command.completed',
                       'command.failed')
        UNION ALL
        SELECT grp, execution, 'frame', frame::text FROM said
        WHERE type IN ('frame.dispatched', 'frame.abandoned', 'frame.attempt_failed', 'frame.committed', 'frame.failed',
                       'loop.shard.enqueued', 'loop.shard.abandoned', 'loop.shard.attempt_failed', 'loop.shard.done',
                       'loop.shard.failed')
        UNION ALL
        SELECT grp, execution, 'stage', stage::text FROM said WHERE type = 'stage.closed'
        UNION ALL
        SELECT grp, execution, 'execution', '' FROM said WHERE type = ANY (p_ending)
    ), relies AS (
        SELECT grp, execution, name, id FROM unnest(f_group, f_execution, f_table, f_id) AS f (grp, execution, name, id)
        UNION ALL
        SELECT grp, execution, 'stage', stage::text FROM said WHERE stage IS NOT NULL
        UNION ALL
        SELECT grp, execution, 'execution', '' FROM said
    )
    SELECT DISTINCT relies.grp, changes.grp FROM relies JOIN changes USING (execution, name, id)
    WHERE changes.grp < relies.grp;
END
$$;

DROP FUNCTION noetl.task_fence_v1;
DROP FUNCTION noetl.has_room_v1;
DROP FUNCTION noetl.lock_jobs_v1;
DROP FUNCTION noetl.apply_pipelines_v1;
DROP FUNCTION noetl.apply_people_v1;
DROP FUNCTION noetl.apply_task_v1;
DROP FUNCTION noetl.create_task_v1;
DROP FUNCTION noetl.apply_partition_v1;
DROP FUNCTION noetl.apply_dag_v1;
DROP FUNCTION noetl.put_outbox_v1;
DROP VIEW noetl.tenant;
DROP TABLE noetl.org_role_membership, noetl.org_role, noetl.app_user, noetl.org;
DROP TABLE noetl.outbox, noetl.operator_state, noetl.dataset_cursor, noetl.task_input, noetl.task,
    noetl.partition_version, noetl.dataset_schema, noetl.dataset_version, noetl.dataset, noetl.job,
    noetl.dag_version_dataset, noetl.dag_current_version, noetl.dag_version;
