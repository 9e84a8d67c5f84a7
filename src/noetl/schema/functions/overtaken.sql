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
