CREATE OR REPLACE FUNCTION noetl.snowflake_at(at timestamptz) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
    RETURN (floor(extract(epoch FROM at) * 1000)::bigint - 1704067200000) << 22;
COMMENT ON FUNCTION noetl.snowflake_at IS 'The lowest id that can be minted at that instant.';
