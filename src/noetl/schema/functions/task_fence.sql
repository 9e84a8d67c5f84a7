CREATE OR REPLACE FUNCTION noetl.task_fence(
    p_tenant text, p_organization text, p_task uuid, p_attempt integer, p_token uuid, p_mode smallint
) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    held record;
BEGIN
    SELECT status, attempt, lease_token, lease_until, available_at INTO held FROM noetl.task
    WHERE tenant_id = p_tenant AND organization_id = p_organization AND task_id = p_task FOR UPDATE;
    RETURN FOUND AND CASE p_mode
        WHEN 1 THEN held.attempt = p_attempt AND held.lease_token = p_token AND held.lease_until > clock_timestamp()
        WHEN 2 THEN held.attempt = p_attempt AND held.lease_token = p_token AND held.lease_until <= clock_timestamp()
        WHEN 3 THEN held.attempt = p_attempt AND held.lease_token IS NULL AND held.available_at <= clock_timestamp()
        WHEN 5 THEN held.available_at IS NOT NULL
        WHEN 6 THEN held.available_at IS NULL
    END;
END
$$;
COMMENT ON FUNCTION noetl.task_fence IS
    'Locks a task and tells whether its lease is held (1), has run out (2) or is free (3), or it is open (5) or ended (6).';
REVOKE ALL ON FUNCTION noetl.task_fence FROM PUBLIC;
