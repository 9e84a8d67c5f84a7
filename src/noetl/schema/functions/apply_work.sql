CREATE OR REPLACE FUNCTION noetl.apply_work(
    p_tenant text, p_organization text, p_types text[], p_now timestamptz, events noetl.new_event[]
) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    own   record;
    facts noetl.event[];
BEGIN
    FOR own IN
        SELECT t.name, array_agg(t.said) AS types
        FROM (SELECT noetl.applied_by(said) AS name, said FROM unnest(p_types) AS said) AS t
        -- Work first, then pipelines, then all others by name: one order for all callers.
        GROUP BY t.name ORDER BY t.name <> 'apply_open_work', t.name <> 'apply_pipelines', t.name
    LOOP
        IF own.name = 'apply_open_work' THEN
            PERFORM noetl.apply_open_work(p_tenant, p_organization, own.types, p_now, events);
            CONTINUE;
        END IF;
        facts := noetl.recorded(p_tenant, p_organization,
                                ARRAY(SELECT e FROM unnest(events) AS e WHERE e.event_type = ANY (own.types)));
        CASE own.name
        WHEN 'apply_pipelines' THEN PERFORM noetl.apply_pipelines(p_tenant, p_organization, facts);
        WHEN 'apply_alerts' THEN PERFORM noetl.apply_alerts(facts);
        WHEN 'apply_changes' THEN PERFORM noetl.apply_changes(facts);
        WHEN 'apply_lineage' THEN PERFORM noetl.apply_lineage(facts);
        WHEN 'apply_pins' THEN PERFORM noetl.apply_pins(facts);
        WHEN 'apply_queries' THEN PERFORM noetl.apply_queries(facts);
        WHEN 'apply_schedules' THEN PERFORM noetl.apply_schedules(p_tenant, p_organization, facts);
        WHEN 'apply_views' THEN PERFORM noetl.apply_views(facts);
        ELSE
            RAISE case_not_found USING MESSAGE = format('no rows are known to follow from %s', own.types);
        END CASE;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.apply_work IS 'Changes every row that follows from events of this transaction.';
REVOKE ALL ON FUNCTION noetl.apply_work FROM PUBLIC;
