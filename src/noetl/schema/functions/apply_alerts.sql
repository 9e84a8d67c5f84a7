CREATE OR REPLACE FUNCTION noetl.apply_alerts(
    p_tenant text, p_organization text, p_execution bigint[], p_event bigint[]
) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    said noetl.event;
BEGIN
    FOR place IN 1..cardinality(p_event) LOOP
        SELECT e.* INTO said FROM noetl.known_event AS e
        WHERE e.execution_id = p_execution[place] AND e.event_id >= p_event[place] AND e.tenant_id = p_tenant
          AND e.organization_id = p_organization ORDER BY e.event_id LIMIT 1;
        IF starts_with(said.event_type, 'delivery.') THEN
            PERFORM noetl.apply_delivery(said);
        ELSE
            PERFORM noetl.apply_alert(said);
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.apply_alerts IS
    'Changes the rows of alerts and their deliveries, as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_alerts FROM PUBLIC;
