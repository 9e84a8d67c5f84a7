CREATE OR REPLACE FUNCTION noetl.tenant() RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN NULLIF(current_setting('noetl.tenant', true), '');
COMMENT ON FUNCTION noetl.tenant IS 'The tenant of this transaction, or null, which matches no row.';
