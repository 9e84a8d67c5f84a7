CREATE OR REPLACE FUNCTION noetl.apply_work_v1(
    p_tenant text, p_organization text, p_work text[], p_now timestamptz, e_written boolean[],
    e_execution bigint[], e_event bigint[], e_time timestamptz[], e_parent bigint[], e_stage bigint[], e_frame bigint[],
    e_loop bigint[], e_index bigint[], e_type text[], e_catalog text[], e_node text[], e_command text[],
    e_shard_id text[], e_meta json[], e_context json[], e_payload_ref json[]
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    around text[];
    own    record;
BEGIN
    around := ARRAY(SELECT w.said FROM unnest(p_work) AS w (said) WHERE noetl.rows_around_v1(w.said) IS NOT NULL);
    IF cardinality(around) < cardinality(p_work) THEN
        PERFORM noetl.apply_open_work_v1(
            p_tenant, p_organization, ARRAY(SELECT unnest(p_work) EXCEPT SELECT unnest(around)), p_now, e_written,
            e_execution, e_event, e_time, e_parent, e_stage, e_frame, e_loop, e_index, e_type, e_catalog, e_node,
            e_command, e_shard_id, e_meta, e_context, e_payload_ref);
    END IF;
    IF cardinality(around) = 0 THEN
        RETURN;
    END IF;
    FOR own IN
        SELECT noetl.rows_around_v1(e.said) AS rows, array_agg(e.execution ORDER BY e.place) AS runs,
               array_agg(e.event ORDER BY e.place) AS facts
        FROM unnest(e_written, e_type, e_execution, e_event) WITH ORDINALITY AS e (written, said, execution, event, place)
        WHERE e.written AND e.said = ANY (around) GROUP BY 1 ORDER BY 1
    LOOP
        CASE own.rows
        WHEN 'alerts' THEN PERFORM noetl.apply_alerts_v1(p_tenant, p_organization, own.runs, own.facts);
        WHEN 'changes' THEN PERFORM noetl.apply_changes_v1(p_tenant, p_organization, own.runs, own.facts);
        WHEN 'lineage' THEN PERFORM noetl.apply_lineage_v1(p_tenant, p_organization, own.runs, own.facts);
        WHEN 'pins' THEN PERFORM noetl.apply_pins_v1(p_tenant, p_organization, own.runs, own.facts);
        WHEN 'queries' THEN PERFORM noetl.apply_queries_v1(p_tenant, p_organization, own.runs, own.facts);
        WHEN 'schedules' THEN PERFORM noetl.apply_schedules_v1(p_tenant, p_organization, own.runs, own.facts);
        END CASE;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION noetl.rows_around_v1(said text) RETURNS text
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
        END
    END
$$;

DROP FUNCTION noetl.apply_views_v1;
DROP TABLE noetl.view_barrier, noetl.view_row, noetl.view_version;
