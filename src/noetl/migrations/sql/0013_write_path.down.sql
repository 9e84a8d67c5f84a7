DO $$
DECLARE
    change record;
    body   text;
BEGIN
    IF EXISTS (SELECT FROM noetl.shard_outbox AS o WHERE noetl.waiting_v1(o.shard)) THEN
        RAISE 'events wait for the materializer; let the write path go back to `ledger` first';
    END IF;
    FOR change IN
        SELECT unnest(ARRAY['append_groups_v1', 'apply_alerts_v1', 'apply_changes_v1', 'apply_lineage_v1', 'apply_pins_v1',
            'apply_pipelines_v1', 'apply_queries_v1', 'apply_views_v1', 'schedule_facts_v1', 'take_curated_answer_v1']) AS name
    LOOP
        body := pg_get_functiondef(('noetl.' || change.name)::regproc);
        EXECUTE replace(body, 'noetl.known_event AS', 'noetl.event AS');
    END LOOP;
    body := pg_get_functiondef('noetl.append_v3'::regproc);
    EXECUTE regexp_replace(body, '    PERFORM pg_advisory_xact_lock_shared\(noetl.write_path_lock_v1.*?END IF;\n', '');
END
$$;
DROP FUNCTION noetl.materialize_v1, noetl.change_write_path_v1, noetl.append_pending_v1,
    noetl.append_pending_groups_v1, noetl.write_path_lock_v1;
DROP POLICY materialized ON noetl.event;
DROP POLICY materialized ON noetl.stream;
DROP VIEW noetl.known_event;
DROP FUNCTION noetl.waiting_v1, noetl.waits_upto_v1;
DROP FUNCTION noetl.refuse_recorded_v1 CASCADE;
DROP TABLE noetl.divergence, noetl.materialized, noetl.pending_event, noetl.shard_outbox, noetl.write_path;
REVOKE ALL ON FUNCTION noetl.ensure_event_partition_v1(bigint) FROM noetl_materializer;
