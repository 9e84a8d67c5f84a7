CREATE OR REPLACE FUNCTION noetl.apply_work(
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
    around := ARRAY(SELECT w.said FROM unnest(p_work) AS w (said) WHERE noetl.rows_around(w.said) IS NOT NULL);
    IF cardinality(around) < cardinality(p_work) THEN
        PERFORM noetl.apply_open_work(
            p_tenant, p_organization, ARRAY(SELECT unnest(p_work) EXCEPT SELECT unnest(around)), p_now, e_written,
            e_execution, e_event, e_time, e_parent, e_stage, e_frame, e_loop, e_index, e_type, e_catalog, e_node,
            e_command, e_shard_id, e_meta, e_context, e_payload_ref);
    END IF;
    IF cardinality(around) = 0 THEN
        RETURN;
    END IF;
    FOR own IN
        SELECT noetl.rows_around(e.said) AS rows, array_agg(e.execution ORDER BY e.place) AS runs,
               array_agg(e.event ORDER BY e.place) AS facts
        FROM unnest(e_written, e_type, e_execution, e_event) WITH ORDINALITY AS e (written, said, execution, event, place)
        WHERE e.written AND e.said = ANY (around) GROUP BY 1 ORDER BY 1
    LOOP
        CASE own.rows
        WHEN 'alerts' THEN PERFORM noetl.apply_alerts(p_tenant, p_organization, own.runs, own.facts);
        WHEN 'changes' THEN PERFORM noetl.apply_changes(p_tenant, p_organization, own.runs, own.facts);
        WHEN 'lineage' THEN PERFORM noetl.apply_lineage(p_tenant, p_organization, own.runs, own.facts);
        WHEN 'pins' THEN PERFORM noetl.apply_pins(p_tenant, p_organization, own.runs, own.facts);
        WHEN 'queries' THEN PERFORM noetl.apply_queries(p_tenant, p_organization, own.runs, own.facts);
        WHEN 'schedules' THEN PERFORM noetl.apply_schedules(p_tenant, p_organization, own.runs, own.facts);
        WHEN 'views' THEN PERFORM noetl.apply_views(p_tenant, p_organization, own.runs, own.facts);
        END CASE;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.apply_work IS 'Changes every row that follows from events of this transaction.';
REVOKE ALL ON FUNCTION noetl.apply_work FROM PUBLIC;
