CREATE OR REPLACE FUNCTION noetl.applied_by(said text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        -- begin generated: functions that change rows
        WHEN said IN (
            'command.abandoned', 'command.attempt_failed', 'command.claimed', 'command.completed', 'command.failed',
            'command.issued', 'command.returned', 'execution.cancelled', 'execution.completed', 'execution.failed',
            'execution.requested', 'frame.abandoned', 'frame.attempt_failed', 'frame.checkpointed', 'frame.committed',
            'frame.dispatched', 'frame.failed', 'loop.shard.abandoned', 'loop.shard.attempt_failed', 'loop.shard.done',
            'loop.shard.enqueued', 'loop.shard.failed', 'playbook.completed', 'playbook.failed', 'stage.closed',
            'stage.opened', 'workflow.completed', 'workflow.failed'
        ) THEN 'apply_open_work'
        WHEN said IN (
            'dag.activated', 'dag.build_failed', 'dag.ready', 'dag.rolled_back', 'dag.version_created',
            'dataset.generation_created', 'dataset.registered', 'dataset.schema_set', 'job.registered',
            'job.state_saved', 'org.created', 'org.settings_changed', 'partition.committed', 'partition.dropped',
            'role.created', 'role.granted', 'role.revoked', 'task.abandoned', 'task.attempt_failed',
            'task.cancel_requested', 'task.cancelled', 'task.claimed', 'task.completed', 'task.created', 'task.failed',
            'task.retried', 'task.skipped', 'task.started', 'user.added', 'user.removed', 'user.role_changed'
        ) THEN 'apply_pipelines'
        WHEN said IN (
            'alert.raised', 'alert.resolved', 'alert.rules_applied', 'alert.rules_removed', 'delivery.attempt_failed',
            'delivery.claimed', 'delivery.created', 'delivery.delivered', 'delivery.failed', 'delivery.rearmed'
        ) THEN 'apply_alerts'
        WHEN said IN (
            'backfill.advanced', 'backfill.cancelled', 'backfill.completed', 'backfill.failed', 'backfill.paused',
            'backfill.queued', 'backfill.requested', 'backfill.resumed', 'dataset.invalidated', 'invalidation.closed',
            'invalidation.processed'
        ) THEN 'apply_changes'
        WHEN said IN (
            'dataset.lineage_set'
        ) THEN 'apply_lineage'
        WHEN said IN (
            'generation.purged', 'generation.retired', 'generation.trimmed', 'pin.created', 'pin.policy_set',
            'pin.released', 'pin.swept'
        ) THEN 'apply_pins'
        WHEN said IN (
            'query.answered', 'query.failed', 'query.readers_set', 'query.refused'
        ) THEN 'apply_queries'
        WHEN said IN (
            'schedule.changed', 'schedule.created', 'schedule.paused', 'schedule.removed', 'schedule.resumed',
            'slot.abandoned', 'slot.attempt_failed', 'slot.claimed', 'slot.failed', 'slot.pruned', 'slot.skipped',
            'slot.succeeded'
        ) THEN 'apply_schedules'
        WHEN said IN (
            'view.activated', 'view.attempt_failed', 'view.claimed', 'view.deployed', 'view.dropped', 'view.released'
        ) THEN 'apply_views'
        -- end generated
    END
$$;
COMMENT ON FUNCTION noetl.applied_by IS 'The function that changes the rows of an event type; null where no row changes.';
REVOKE ALL ON FUNCTION noetl.applied_by FROM PUBLIC;
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
-- Stands where an event's type is written, instead of in a constraint of the table: a constraint is planned anew for every
-- statement, which cost 2 microseconds an event and 100 a step.
CREATE OR REPLACE FUNCTION noetl.declared(said text) RETURNS text
    LANGUAGE sql AS $$
    SELECT CASE WHEN said IN (
        -- begin generated: declared types
        'alert.raised', 'alert.resolved', 'alert.rules_applied', 'alert.rules_removed', 'archive.removed',
        'artifact.stored', 'backfill.advanced', 'backfill.cancelled', 'backfill.completed', 'backfill.failed',
        'backfill.paused', 'backfill.queued', 'backfill.requested', 'backfill.resumed', 'catalog.registered',
        'catalog.removed', 'catalog.restored', 'checkpoint.committed', 'command.abandoned', 'command.attempt_failed',
        'command.claimed', 'command.completed', 'command.failed', 'command.issued', 'command.resumed',
        'command.returned', 'command.stalled', 'command.started', 'curated.read', 'dag.activated', 'dag.build_failed',
        'dag.ready', 'dag.rolled_back', 'dag.version_created', 'dataset.generation_created', 'dataset.invalidated',
        'dataset.lineage_set', 'dataset.registered', 'dataset.schema_set', 'delivery.attempt_failed',
        'delivery.claimed', 'delivery.created', 'delivery.delivered', 'delivery.failed', 'delivery.rearmed',
        'execution.cancelled', 'execution.completed', 'execution.failed', 'execution.requested', 'frame.abandoned',
        'frame.attempt_failed', 'frame.checkpointed', 'frame.committed', 'frame.dispatched', 'frame.failed',
        'generation.purged', 'generation.retired', 'generation.trimmed', 'invalidation.closed',
        'invalidation.processed', 'job.registered', 'job.state_saved', 'loop.done', 'loop.fanin.completed',
        'loop.fanout.started', 'loop.item', 'loop.shard.abandoned', 'loop.shard.attempt_failed', 'loop.shard.done',
        'loop.shard.enqueued', 'loop.shard.failed', 'loop.started', 'org.created', 'org.settings_changed',
        'partition.archived', 'partition.committed', 'partition.dropped', 'pin.created', 'pin.policy_set',
        'pin.released', 'pin.swept', 'playbook.completed', 'playbook.failed', 'playbook.initialized', 'query.answered',
        'query.failed', 'query.readers_set', 'query.refused', 'role.created', 'role.granted', 'role.revoked',
        'schedule.changed', 'schedule.created', 'schedule.paused', 'schedule.removed', 'schedule.resumed',
        'slot.abandoned', 'slot.attempt_failed', 'slot.claimed', 'slot.failed', 'slot.pruned', 'slot.skipped',
        'slot.succeeded', 'stage.closed', 'stage.opened', 'step.entered', 'step.exited', 'step.skipped',
        'task.abandoned', 'task.attempt_failed', 'task.cancel_requested', 'task.cancelled', 'task.claimed',
        'task.completed', 'task.created', 'task.failed', 'task.retried', 'task.skipped', 'task.started',
        'tenant.erased', 'user.added', 'user.removed', 'user.role_changed', 'view.activated', 'view.attempt_failed',
        'view.claimed', 'view.deployed', 'view.dropped', 'view.released', 'workflow.completed', 'workflow.failed',
        'workflow.initialized'
        -- end generated
    ) OR said LIKE 'business._%' THEN said ELSE noetl.refuse_type(said) END
$$;
COMMENT ON FUNCTION noetl.declared IS 'Returns an event type that the catalogue declares, or the user''s own; refuses any other.';
CREATE OR REPLACE FUNCTION noetl.overtaken(
    fences noetl.lease_fence[], groups integer[], events noetl.new_event[]
) RETURNS TABLE (loser integer, winner integer)
    LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY WITH said AS (
        SELECT groups[e.append] AS grp, e.execution_id AS execution, e.stage_id AS stage, e.frame_id AS frame,
               e.event_type AS type, e.command_id AS command
        FROM unnest(events) AS e
    ), changes AS (
        SELECT grp, execution, 'command' AS name, command AS id FROM said
        WHERE type IN (
            -- begin generated: types that move the lease of a command
            'command.abandoned', 'command.attempt_failed', 'command.claimed', 'command.completed', 'command.failed',
            'command.returned'
            -- end generated
        )
        UNION ALL
        SELECT grp, execution, 'frame', frame::text FROM said
        WHERE type IN (
            -- begin generated: types that move the lease of a frame
            'frame.abandoned', 'frame.attempt_failed', 'frame.committed', 'frame.dispatched', 'frame.failed',
            'loop.shard.abandoned', 'loop.shard.attempt_failed', 'loop.shard.done', 'loop.shard.enqueued',
            'loop.shard.failed'
            -- end generated
        )
        UNION ALL
        SELECT grp, execution, 'stage', stage::text FROM said
        WHERE type IN (
            -- begin generated: types that close a stage
            'stage.closed'
            -- end generated
        )
        UNION ALL
        SELECT grp, execution, 'execution', '' FROM said
        WHERE type IN (
            -- begin generated: types that end an execution
            'execution.cancelled', 'execution.completed', 'execution.failed', 'playbook.completed', 'playbook.failed',
            'workflow.completed', 'workflow.failed'
            -- end generated
        )
        UNION ALL
        -- Whoever changes a task fences it, so its fences tell which.
        SELECT f.grp, f.execution_id, f.table_name, f.id FROM unnest(fences) AS f
        WHERE f.table_name = 'task' AND EXISTS (
            SELECT FROM said
            WHERE said.grp = f.grp AND said.type IN (
                -- begin generated: types that move the lease of a task
                'task.abandoned', 'task.attempt_failed', 'task.cancelled', 'task.claimed', 'task.completed',
                'task.failed', 'task.retried', 'task.skipped'
                -- end generated
            ))
    ), relies AS (
        SELECT f.grp, f.execution_id AS execution, f.table_name AS name, f.id FROM unnest(fences) AS f
        UNION ALL
        SELECT grp, execution, 'stage', stage::text FROM said WHERE stage IS NOT NULL
        UNION ALL
        -- Datasets, tasks, schedules and their like outlive the run that caused them.
        SELECT grp, execution, 'execution', '' FROM said
        WHERE type NOT IN (
            -- begin generated: types that outlive executions
            'alert.raised', 'alert.resolved', 'alert.rules_applied', 'alert.rules_removed', 'archive.removed',
            'backfill.advanced', 'backfill.cancelled', 'backfill.completed', 'backfill.failed', 'backfill.paused',
            'backfill.queued', 'backfill.requested', 'backfill.resumed', 'catalog.registered', 'catalog.removed',
            'catalog.restored', 'curated.read', 'dag.activated', 'dag.build_failed', 'dag.ready', 'dag.rolled_back',
            'dag.version_created', 'dataset.generation_created', 'dataset.invalidated', 'dataset.lineage_set',
            'dataset.registered', 'dataset.schema_set', 'delivery.attempt_failed', 'delivery.claimed',
            'delivery.created', 'delivery.delivered', 'delivery.failed', 'delivery.rearmed', 'generation.purged',
            'generation.retired', 'generation.trimmed', 'invalidation.closed', 'invalidation.processed',
            'job.registered', 'job.state_saved', 'org.created', 'org.settings_changed', 'partition.archived',
            'partition.committed', 'partition.dropped', 'pin.created', 'pin.policy_set', 'pin.released', 'pin.swept',
            'query.answered', 'query.failed', 'query.readers_set', 'query.refused', 'role.created', 'role.granted',
            'role.revoked', 'schedule.changed', 'schedule.created', 'schedule.paused', 'schedule.removed',
            'schedule.resumed', 'slot.abandoned', 'slot.attempt_failed', 'slot.claimed', 'slot.failed', 'slot.pruned',
            'slot.skipped', 'slot.succeeded', 'task.abandoned', 'task.attempt_failed', 'task.cancel_requested',
            'task.cancelled', 'task.claimed', 'task.completed', 'task.created', 'task.failed', 'task.retried',
            'task.skipped', 'task.started', 'tenant.erased', 'user.added', 'user.removed', 'user.role_changed',
            'view.activated', 'view.attempt_failed', 'view.claimed', 'view.deployed', 'view.dropped', 'view.released'
            -- end generated
        )
    )
    SELECT DISTINCT relies.grp, changes.grp FROM relies JOIN changes USING (execution, name, id)
    WHERE changes.grp < relies.grp;
END
$$;
COMMENT ON FUNCTION noetl.overtaken IS
    'Names the groups whose lease another group of the same call takes first; fences see only what stood before the call.';
REVOKE ALL ON FUNCTION noetl.overtaken FROM PUBLIC;
