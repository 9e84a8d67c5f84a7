CREATE OR REPLACE FUNCTION noetl.take_curated_answer(
    p_tenant text, p_organization text, p_read_id bigint
) RETURNS json
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    taken json;
BEGIN
    IF p_tenant IS DISTINCT FROM noetl.tenant() OR p_organization IS DISTINCT FROM noetl.organization() THEN
        RAISE insufficient_privilege USING MESSAGE = 'the answer lies outside the tenant of this transaction';
    END IF;
    IF NOT EXISTS (
        SELECT FROM noetl.known_event AS e WHERE e.execution_id = p_read_id AND e.tenant_id = p_tenant
          AND e.organization_id = p_organization AND e.event_type = 'curated.read'
    ) THEN
        RAISE insufficient_privilege USING MESSAGE = format('read %s is not on record, so it gives nothing', p_read_id);
    END IF;
    DELETE FROM noetl.curated_answer AS a
    WHERE a.tenant_id = p_tenant AND a.organization_id = p_organization AND a.read_id = p_read_id
    RETURNING a.answer INTO taken;
    RETURN taken;
END
$$;
COMMENT ON FUNCTION noetl.take_curated_answer IS
    'Hands an answer out, once, if the read is on record in the ledger; null if it was handed out before.';
REVOKE ALL ON FUNCTION noetl.take_curated_answer FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.take_curated_answer TO noetl_operator;
