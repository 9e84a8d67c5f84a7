CREATE OR REPLACE FUNCTION noetl.payload_lock(p_tenant text, p_organization text) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN hashtextextended('noetl.payloads/' || p_tenant || '/' || p_organization, 0);
COMMENT ON FUNCTION noetl.payload_lock IS 'The advisory lock between appends with payloads and collectors.';
