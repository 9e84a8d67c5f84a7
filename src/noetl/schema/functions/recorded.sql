CREATE OR REPLACE FUNCTION noetl.recorded(
    p_tenant text, p_organization text, events noetl.new_event[]
) RETURNS noetl.event[]
    LANGUAGE sql STABLE AS $$
    -- Each asked for in the key's order, so that no plan made without statistics reads a whole execution for one event.
    SELECT array_agg(found.r ORDER BY x.ordinality)
    FROM unnest(events) WITH ORDINALITY AS x
    CROSS JOIN LATERAL (
        SELECT ROW (e.*)::noetl.event AS r FROM noetl.known_event AS e
        WHERE e.execution_id = x.execution_id AND e.event_id >= x.event_id AND e.tenant_id = p_tenant
          AND e.organization_id = p_organization ORDER BY e.event_id LIMIT 1
    ) AS found
$$;
COMMENT ON FUNCTION noetl.recorded IS 'Events of this transaction as they were written, in their order.';
REVOKE ALL ON FUNCTION noetl.recorded FROM PUBLIC;
