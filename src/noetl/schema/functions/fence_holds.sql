CREATE OR REPLACE FUNCTION noetl.fence_holds(
    fence noetl.lease_fence, held_attempt integer, held_token uuid, held_until timestamptz
) RETURNS boolean
    LANGUAGE sql VOLATILE AS $$
    SELECT held_attempt = fence.attempt AND CASE fence.mode
        WHEN 1 THEN noetl.lease_is_held(held_token, held_until, fence.token)
        WHEN 2 THEN held_token = fence.token AND held_until <= clock_timestamp()
        WHEN 3 THEN held_token IS NULL
    END
$$;
COMMENT ON FUNCTION noetl.fence_holds IS
    'Tells whether the lease of a row is as a fence says: held (1), run out (2) or free (3). Null for any other mode.';
REVOKE ALL ON FUNCTION noetl.fence_holds FROM PUBLIC;
