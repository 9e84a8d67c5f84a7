CREATE OR REPLACE FUNCTION noetl.apply_changes(facts noetl.event[]) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    said noetl.event;
BEGIN
    FOREACH said IN ARRAY facts LOOP
        CASE
        WHEN said.event_type IN (
            -- begin generated: types of invalidations
            'dataset.invalidated', 'invalidation.closed', 'invalidation.processed'
            -- end generated
        ) THEN PERFORM noetl.apply_invalidation(said);
        WHEN said.event_type IN (
            -- begin generated: types of backfills
            'backfill.advanced', 'backfill.cancelled', 'backfill.completed', 'backfill.failed', 'backfill.paused',
            'backfill.queued', 'backfill.requested', 'backfill.resumed'
            -- end generated
        ) THEN PERFORM noetl.apply_backfill(said);
        ELSE
            RAISE case_not_found USING MESSAGE = format('no rule says what becomes of data after %s', said.event_type);
        END CASE;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.apply_changes IS
    'Changes the rows of invalidations and backfills of datasets, as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_changes FROM PUBLIC;
