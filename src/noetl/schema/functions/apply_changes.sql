CREATE OR REPLACE FUNCTION noetl.apply_changes(
    p_tenant text, p_organization text, p_execution bigint[], p_event bigint[]
) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    said noetl.event;
BEGIN
    FOR place IN 1..cardinality(p_event) LOOP
        -- Asked for in the key's order, so that no plan made without statistics reads a whole execution for one event.
        SELECT e.* INTO said FROM noetl.known_event AS e
        WHERE e.execution_id = p_execution[place] AND e.event_id >= p_event[place] AND e.tenant_id = p_tenant
          AND e.organization_id = p_organization ORDER BY e.event_id LIMIT 1;
        IF starts_with(said.event_type, 'backfill.') THEN
            PERFORM noetl.apply_backfill(said);
        ELSE
            PERFORM noetl.apply_invalidation(said);
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.apply_changes IS
    'Changes the rows of invalidations and backfills of datasets, as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_changes FROM PUBLIC;
