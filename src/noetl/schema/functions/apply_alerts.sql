CREATE OR REPLACE FUNCTION noetl.apply_alerts(facts noetl.event[]) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    said noetl.event;
BEGIN
    FOREACH said IN ARRAY facts LOOP
        CASE
        WHEN said.event_type IN (
            -- begin generated: types of alerts
            'alert.raised', 'alert.resolved', 'alert.rules_applied', 'alert.rules_removed'
            -- end generated
        ) THEN PERFORM noetl.apply_alert(said);
        WHEN said.event_type IN (
            -- begin generated: types of deliveries
            'delivery.attempt_failed', 'delivery.claimed', 'delivery.created', 'delivery.delivered', 'delivery.failed',
            'delivery.rearmed'
            -- end generated
        ) THEN PERFORM noetl.apply_delivery(said);
        ELSE
            RAISE case_not_found USING MESSAGE = format('no rule says what becomes of alerts after %s', said.event_type);
        END CASE;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.apply_alerts IS
    'Changes the rows of alerts and their deliveries, as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_alerts FROM PUBLIC;
