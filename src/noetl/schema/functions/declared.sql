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
