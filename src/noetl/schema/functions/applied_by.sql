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
