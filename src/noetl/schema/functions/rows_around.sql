CREATE OR REPLACE FUNCTION noetl.rows_around(said text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN said = 'dataset.lineage_set' THEN 'lineage'
        WHEN said = 'dataset.invalidated' THEN 'changes'
        ELSE CASE split_part(said, '.', 1)
            WHEN 'alert' THEN 'alerts' WHEN 'delivery' THEN 'alerts'
            WHEN 'backfill' THEN 'changes' WHEN 'invalidation' THEN 'changes'
            WHEN 'pin' THEN 'pins' WHEN 'generation' THEN 'pins'
            WHEN 'query' THEN 'queries'
            WHEN 'schedule' THEN 'schedules' WHEN 'slot' THEN 'schedules' WHEN 'source' THEN 'schedules'
            WHEN 'view' THEN 'views'
        END
    END
$$;
COMMENT ON FUNCTION noetl.rows_around IS
    'Tells which rows an event type changes, if they are not of work and pipelines.';
REVOKE ALL ON FUNCTION noetl.rows_around FROM PUBLIC;
