CREATE OR REPLACE FUNCTION noetl.organization() RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN NULLIF(current_setting('noetl.organization', true), '');
COMMENT ON FUNCTION noetl.organization IS 'The organization of this transaction, or null, which matches no row.';
