CREATE OR REPLACE FUNCTION noetl.sealed_rows()
    RETURNS TABLE (tenant_id text, organization_id text, key_id text, sealed bigint)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.tenant_id, s.organization_id, s.key_id, count(*)
    FROM (SELECT c.tenant_id, c.organization_id, c.key_id FROM noetl.credential AS c
          UNION ALL
          SELECT k.tenant_id, k.organization_id, k.key_id FROM noetl.keychain AS k) AS s
    GROUP BY s.tenant_id, s.organization_id, s.key_id
$$;
COMMENT ON FUNCTION noetl.sealed_rows IS
    'How many rows of each organization each master key seals, so that keys are rotated and none in use is removed.';
REVOKE ALL ON FUNCTION noetl.sealed_rows FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.sealed_rows TO noetl_runtime;
