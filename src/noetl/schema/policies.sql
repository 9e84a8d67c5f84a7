-- Who may see and do what: row-level security first, then rights. Functions carry their own rights in their files.
--
-- Row-level security is forced, so it binds the owner too. Each policy compares with the tenant and organization of the
-- transaction, which are null unless they were set, and null matches no row: a policy fails closed.

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'alert', 'alert_rules', 'api_token', 'app_user', 'archive_payload', 'backfill', 'backfill_partition',
        'broken_stream', 'catalog', 'column_lineage', 'command', 'credential', 'cron_slot', 'curated_answer',
        'dag_current_version',
        'dag_version', 'dag_version_dataset', 'data_invalidation', 'dataset', 'dataset_cursor', 'dataset_lineage',
        'dataset_reader', 'dataset_schema', 'dataset_version', 'decision_begun', 'delivery', 'event', 'event_archive',
        'execution_head', 'frame', 'held_event', 'idempotency_key', 'job', 'keychain', 'ledger_head', 'ledger_link',
        'ledger_node', 'lost_fact', 'openlineage_cursor',
        'operator_state', 'org', 'org_role', 'org_role_membership', 'outbox', 'partition_version', 'payload_hold',
        'payload_tombstone', 'pending_event', 'pending_leaf', 'pin', 'projection', 'query_audit', 'retention_policy',
        'retired_generation', 'schedule', 'shard_holder', 'shard_lease', 'snapshot', 'stage', 'stream', 'sweep',
        'task', 'task_input', 'trimmed_version', 'view_barrier', 'view_row', 'view_version', 'worker'
    ] LOOP
        EXECUTE format('ALTER TABLE noetl.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE noetl.%I FORCE ROW LEVEL SECURITY', name);
    END LOOP;

    -- Rows of one organization. The owner is bound too, since the functions that write these rows run as the owner.
    FOREACH name IN ARRAY ARRAY[
        'alert', 'alert_rules', 'app_user', 'backfill', 'backfill_partition', 'catalog', 'column_lineage',
        'command', 'cron_slot', 'dag_current_version', 'dag_version', 'dag_version_dataset', 'data_invalidation',
        'dataset', 'dataset_cursor', 'dataset_lineage', 'dataset_reader', 'dataset_schema', 'dataset_version',
        'delivery', 'event', 'execution_head', 'frame', 'idempotency_key', 'job', 'openlineage_cursor',
        'operator_state', 'org', 'org_role', 'org_role_membership', 'outbox', 'partition_version', 'payload_hold',
        'payload_tombstone', 'pin', 'query_audit', 'retention_policy', 'retired_generation', 'schedule', 'stage',
        'stream', 'sweep', 'task', 'task_input', 'trimmed_version', 'view_barrier', 'view_row', 'view_version',
        'worker'
    ] LOOP
        EXECUTE format('CREATE POLICY scoped ON noetl.%I TO noetl_runtime, current_user USING (tenant_id = '
                       '(SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()))', name);
    END LOOP;
    -- Rows that only the runtime itself writes.
    FOREACH name IN ARRAY ARRAY['api_token', 'credential', 'decision_begun', 'keychain', 'lost_fact'] LOOP
        EXECUTE format('CREATE POLICY scoped ON noetl.%I TO noetl_runtime USING (tenant_id = '
                       '(SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()))', name);
    END LOOP;
    -- Rows that the runtime reads and others write.
    FOREACH name IN ARRAY ARRAY['archive_payload', 'broken_stream', 'event_archive', 'projection', 'snapshot'] LOOP
        EXECUTE format('CREATE POLICY scoped ON noetl.%I FOR SELECT TO noetl_runtime USING (tenant_id = '
                       '(SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()))', name);
    END LOOP;
    -- Archives are recorded within the organization they belong to.
    FOREACH name IN ARRAY ARRAY['archive_payload', 'event_archive'] LOOP
        EXECUTE format('CREATE POLICY recording ON noetl.%I TO noetl_runtime USING (tenant_id = '
                       '(SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()))', name);
    END LOOP;
    -- A projector that reads for one organization, as for a snapshot, sees that one only; without one it sees all.
    FOREACH name IN ARRAY ARRAY['event', 'event_archive', 'snapshot'] LOOP
        EXECUTE format('CREATE POLICY bound ON noetl.%I AS RESTRICTIVE FOR SELECT TO noetl_projector '
                       'USING ((SELECT noetl.tenant()) IS NULL OR tenant_id = (SELECT noetl.tenant()) '
                       'AND organization_id = (SELECT noetl.organization()))', name);
    END LOOP;

    -- What the reaper finds for all tenants; it acts as the runtime within each organization.
    FOREACH name IN ARRAY ARRAY[
        'alert', 'alert_rules', 'backfill', 'cron_slot', 'dag_current_version', 'dag_version', 'delivery', 'job',
        'outbox', 'schedule', 'task', 'view_version'
    ] LOOP
        EXECUTE format('CREATE POLICY all_tenants ON noetl.%I FOR SELECT TO noetl_reaper USING (true)', name);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['execution_head', 'command', 'stage', 'frame'] LOOP
        EXECUTE format('CREATE POLICY all_tenants ON noetl.%I FOR SELECT TO noetl_reaper, noetl_projector USING (true)',
                       name);
    END LOOP;

    -- What is held for a role is changed by that role alone, and seen by all.
    FOREACH name IN ARRAY ARRAY['shard_holder', 'shard_lease'] LOOP
        EXECUTE format('CREATE POLICY seen ON noetl.%I FOR SELECT USING (true)', name);
        EXECUTE format('CREATE POLICY own ON noetl.%I TO noetl_relay, noetl_projector, noetl_materializer '
                       'USING (role = substring(current_user FROM 7)) WITH CHECK (role = substring(current_user FROM 7))',
                       name);
        -- The shadow compares as the materializer, under shards of its own.
        EXECUTE format('CREATE POLICY shadow ON noetl.%I TO noetl_materializer USING (role = ''shadow'') '
                       'WITH CHECK (role = ''shadow'')', name);
    END LOOP;
END
$$;

-- The ledger and what waits to come into it.
CREATE POLICY all_tenants ON noetl.event FOR SELECT TO noetl_projector, noetl_retention USING (true);
CREATE POLICY relayed ON noetl.event FOR SELECT TO noetl_relay, noetl_materializer USING (true);
CREATE POLICY materialized ON noetl.event FOR INSERT TO noetl_materializer WITH CHECK (true);
CREATE POLICY dropping ON noetl.event FOR SELECT TO current_user USING (true);
CREATE POLICY all_tenants ON noetl.stream FOR SELECT TO noetl_projector, noetl_retention USING (true);
CREATE POLICY materialized ON noetl.stream TO noetl_materializer USING (true) WITH CHECK (true);
CREATE POLICY dropping ON noetl.stream FOR SELECT TO current_user USING (true);
CREATE POLICY forgetting ON noetl.stream FOR DELETE TO current_user USING (true);
CREATE POLICY all_tenants ON noetl.idempotency_key FOR SELECT TO noetl_retention USING (true);
CREATE POLICY expired ON noetl.idempotency_key FOR DELETE TO noetl_retention USING (expires_at < now());
CREATE POLICY dropping ON noetl.idempotency_key FOR SELECT TO current_user USING (true);
CREATE POLICY scoped ON noetl.pending_event TO noetl_runtime, current_user
    USING (tenant_id = noetl.tenant() AND organization_id = noetl.organization());
CREATE POLICY all_tenants ON noetl.pending_event FOR SELECT
    TO noetl_projector, noetl_retention, noetl_reaper, noetl_relay, noetl_materializer USING (true);
CREATE POLICY moving ON noetl.pending_event FOR DELETE TO noetl_materializer USING (true);
CREATE POLICY counted ON noetl.pending_event FOR SELECT TO current_user USING (true);

-- Links span the tenants of a shard, so nobody who serves one organization sees them; nobody changes or removes any.
CREATE POLICY linking ON noetl.ledger_link FOR INSERT TO noetl_materializer, current_user WITH CHECK (true);
CREATE POLICY following ON noetl.ledger_link FOR SELECT TO noetl_projector, noetl_materializer, current_user USING (true);
CREATE POLICY waiting ON noetl.pending_leaf FOR INSERT TO current_user WITH CHECK (true);
CREATE POLICY moving ON noetl.pending_leaf TO noetl_materializer USING (true);
CREATE POLICY all_tenants ON noetl.ledger_node TO noetl_projector USING (true);
CREATE POLICY all_tenants ON noetl.ledger_head TO noetl_projector USING (true);

-- What is kept, archived and dropped for all tenants.
CREATE POLICY all_tenants ON noetl.projection TO noetl_projector USING (true);
CREATE POLICY all_tenants ON noetl.snapshot TO noetl_projector USING (true);
CREATE POLICY all_tenants ON noetl.broken_stream TO noetl_projector USING (true);
CREATE POLICY all_tenants ON noetl.held_event TO noetl_projector USING (true);
CREATE POLICY kept ON noetl.projection FOR SELECT TO noetl_retention USING (true);
CREATE POLICY kept ON noetl.snapshot FOR SELECT TO noetl_retention USING (true);
CREATE POLICY reading ON noetl.event_archive FOR SELECT TO noetl_projector, noetl_retention USING (true);
CREATE POLICY marking ON noetl.event_archive FOR UPDATE TO noetl_retention USING (true);
CREATE POLICY dropping ON noetl.event_archive TO current_user USING (true);
CREATE POLICY all_tenants ON noetl.pin FOR SELECT TO noetl_retention USING (true);
CREATE POLICY all_tenants ON noetl.retention_policy FOR SELECT TO noetl_retention USING (true);

-- The owner's functions look over all tenants; nobody logs in as the owner but migrations.
CREATE POLICY admitting ON noetl.api_token FOR SELECT TO current_user USING (true);
CREATE POLICY counting ON noetl.credential FOR SELECT TO current_user USING (true);
CREATE POLICY counting ON noetl.keychain FOR SELECT TO current_user USING (true);

-- What was lost is counted and listed for all tenants by those who tell how far projections lag.
CREATE POLICY all_tenants ON noetl.lost_fact FOR SELECT TO noetl_projector USING (true);

-- Answers of curated views are computed by a projector and forgotten after an hour.
CREATE POLICY scoped ON noetl.curated_answer TO noetl_projector, current_user
    USING (tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()));
CREATE POLICY forgotten ON noetl.curated_answer FOR SELECT TO noetl_projector USING (true);
CREATE POLICY forgetting ON noetl.curated_answer FOR DELETE TO noetl_projector
    USING (computed_at < now() - interval '1 hour');

-- So that every process can tell whether the schema is the one it was written for.
GRANT SELECT ON public.schema_revision TO
    noetl_runtime, noetl_projector, noetl_retention, noetl_reaper, noetl_relay, noetl_materializer;

-- The runtime reads its organization's rows; rows that follow from events are written by functions alone.
GRANT SELECT ON
    noetl.alert, noetl.alert_rules, noetl.app_user, noetl.backfill, noetl.backfill_partition, noetl.broken_stream,
    noetl.column_lineage, noetl.command, noetl.cron_slot, noetl.dag_current_version, noetl.dag_version, noetl.dag_version_dataset,
    noetl.data_invalidation, noetl.dataset, noetl.dataset_cursor, noetl.dataset_lineage, noetl.dataset_reader,
    noetl.dataset_schema, noetl.dataset_version, noetl.delivery, noetl.divergence, noetl.event, noetl.execution,
    noetl.execution_head, noetl.frame, noetl.idempotency_key, noetl.job, noetl.known_event, noetl.materialized,
    noetl.operator_state, noetl.org, noetl.org_role, noetl.org_role_membership, noetl.outbox,
    noetl.partition_version, noetl.payload_place, noetl.pending_event, noetl.pin, noetl.projection,
    noetl.projection_checkpoint, noetl.query_audit, noetl.relay_cursor, noetl.result_ref, noetl.retention_policy,
    noetl.retired_generation, noetl.schedule, noetl.shard, noetl.shard_holder, noetl.shard_lease,
    noetl.shard_outbox, noetl.snapshot, noetl.stage, noetl.stream, noetl.sweep, noetl.task, noetl.task_input,
    noetl.tenant, noetl.trimmed_version, noetl.view_version, noetl.write_path
    TO noetl_runtime;
GRANT SELECT, INSERT ON noetl.api_token, noetl.catalog, noetl.event_archive TO noetl_runtime;
GRANT SELECT, INSERT, DELETE ON
    noetl.archive_payload, noetl.lost_fact, noetl.payload_hold, noetl.payload_tombstone, noetl.worker
    TO noetl_runtime;
GRANT SELECT, INSERT, UPDATE ON noetl.openlineage_cursor TO noetl_runtime;
GRANT SELECT, INSERT, UPDATE, DELETE ON
    noetl.credential, noetl.decision_begun, noetl.keychain, noetl.stream_durable, noetl.view_barrier, noetl.view_row
    TO noetl_runtime;

-- A projector reads the ledger and writes what is derived from it.
GRANT SELECT ON
    noetl.archive_payload, noetl.command, noetl.curated_secret, noetl.divergence, noetl.event, noetl.event_archive,
    noetl.execution, noetl.execution_head, noetl.frame, noetl.known_event, noetl.ledger_identity,
    noetl.ledger_link, noetl.lost_fact, noetl.materialized,
    noetl.pending_event, noetl.relay_cursor, noetl.result_ref, noetl.shard, noetl.shard_outbox, noetl.stage,
    noetl.stream, noetl.write_path
    TO noetl_projector;
GRANT SELECT, UPDATE ON noetl.projection_checkpoint, noetl.shard_lease TO noetl_projector;
GRANT SELECT, INSERT ON noetl.ledger_head, noetl.ledger_node TO noetl_projector;
GRANT SELECT, INSERT, DELETE ON noetl.curated_answer TO noetl_projector;
GRANT SELECT, INSERT, UPDATE ON noetl.payload_place TO noetl_projector;
GRANT SELECT, INSERT, UPDATE, DELETE ON
    noetl.broken_stream, noetl.held_event, noetl.projection, noetl.projection_epoch, noetl.shard_holder,
    noetl.snapshot, noetl.stream_durable
    TO noetl_projector;

-- Retention reads what it may have to keep, and removes keys that expired.
GRANT SELECT ON
    noetl.archive_payload, noetl.divergence, noetl.event, noetl.event_archive, noetl.known_event,
    noetl.materialized, noetl.payload_place, noetl.pending_event, noetl.pin, noetl.projection,
    noetl.projection_checkpoint, noetl.relay_cursor, noetl.result_ref, noetl.retention_policy, noetl.shard,
    noetl.shard_holder, noetl.shard_lease, noetl.shard_outbox, noetl.snapshot, noetl.stream, noetl.stream_durable,
    noetl.write_path
    TO noetl_retention;
GRANT SELECT, DELETE ON noetl.idempotency_key TO noetl_retention;

-- The reaper only looks.
GRANT SELECT ON
    noetl.alert, noetl.alert_rules, noetl.backfill, noetl.command, noetl.cron_slot, noetl.dag_current_version,
    noetl.dag_version, noetl.delivery, noetl.execution_head, noetl.frame, noetl.job, noetl.known_event,
    noetl.outbox, noetl.pending_event, noetl.schedule, noetl.shard, noetl.stage, noetl.task, noetl.view_version
    TO noetl_reaper;

-- A relay moves its cursors.
GRANT SELECT ON
    noetl.divergence, noetl.event, noetl.known_event, noetl.materialized, noetl.pending_event, noetl.shard,
    noetl.shard_outbox, noetl.write_path
    TO noetl_relay;
GRANT SELECT, UPDATE ON noetl.shard_lease TO noetl_relay;
GRANT SELECT, INSERT, UPDATE, DELETE ON noetl.relay_cursor, noetl.shard_holder, noetl.stream_durable TO noetl_relay;

-- A materializer writes the ledger in the write path `stream`, and compares in the shadow.
GRANT SELECT ON noetl.known_event, noetl.relay_cursor, noetl.write_path TO noetl_materializer;
GRANT SELECT, DELETE ON noetl.pending_event, noetl.pending_leaf TO noetl_materializer;
GRANT SELECT, INSERT ON noetl.event, noetl.ledger_link TO noetl_materializer;
GRANT SELECT, UPDATE ON noetl.shard, noetl.shard_lease, noetl.shard_outbox TO noetl_materializer;
GRANT SELECT, INSERT, UPDATE ON noetl.stream TO noetl_materializer;
GRANT SELECT, INSERT, UPDATE, DELETE ON
    noetl.divergence, noetl.materialized, noetl.shard_holder, noetl.stream_durable
    TO noetl_materializer;

-- Columns that move without an event: heartbeats, marks of delivery, and what was removed.
GRANT UPDATE (revoked_at, last_used_at, opened_at) ON noetl.api_token TO noetl_runtime;
GRANT UPDATE (removed) ON noetl.catalog TO noetl_runtime;
GRANT UPDATE (lease_until, last_heartbeat) ON noetl.command TO noetl_runtime;
GRANT UPDATE (lease_until, last_heartbeat) ON noetl.cron_slot TO noetl_runtime;
GRANT UPDATE (lease_until, last_heartbeat) ON noetl.delivery TO noetl_runtime;
GRANT UPDATE (dropped_at) ON noetl.event_archive TO noetl_retention;
GRANT UPDATE (
    first_execution_id, last_execution_id, events, executions, bounds, manifest_ref, manifest_sha256, archived_at,
    removed_at
) ON noetl.event_archive TO noetl_runtime;
GRANT UPDATE (lease_until, last_heartbeat) ON noetl.frame TO noetl_runtime;
GRANT UPDATE (acknowledged_at) ON noetl.lost_fact TO noetl_runtime;
GRANT UPDATE (status, attempts, last_error, lease_token, lease_until, processed_at) ON noetl.outbox TO noetl_runtime;
GRANT UPDATE (condemned_at, removed_at) ON noetl.payload_tombstone TO noetl_runtime;
GRANT UPDATE (files_removed_at) ON noetl.retired_generation TO noetl_runtime;
GRANT UPDATE (lease_until, last_heartbeat) ON noetl.task TO noetl_runtime;
GRANT UPDATE (files_removed_at) ON noetl.trimmed_version TO noetl_runtime;
GRANT UPDATE (lease_until, last_heartbeat) ON noetl.view_version TO noetl_runtime;
GRANT UPDATE (pool, slots, labels, last_heartbeat) ON noetl.worker TO noetl_runtime;
