CREATE OR REPLACE FUNCTION noetl.token_scope(p_digest bytea)
    RETURNS TABLE (tenant_id text, organization_id text, role text, token_id uuid)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.tenant_id, t.organization_id, t.role, t.token_id
    FROM noetl.api_token AS t
    WHERE t.digest = p_digest AND t.revoked_at IS NULL
      AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp())
$$;
COMMENT ON FUNCTION noetl.token_scope IS
    'Whose a token is and what it may do; no row for one that is unknown, expired or revoked.';
REVOKE ALL ON FUNCTION noetl.token_scope FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.token_scope TO noetl_runtime;
