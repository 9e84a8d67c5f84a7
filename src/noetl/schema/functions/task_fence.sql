CREATE OR REPLACE FUNCTION noetl.task_fence(p_tenant text, p_organization text, fence noetl.lease_fence) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    held record;
BEGIN
    SELECT attempt, lease_token, lease_until, available_at INTO held FROM noetl.task
    WHERE tenant_id = p_tenant AND organization_id = p_organization AND task_id = fence.id::uuid FOR UPDATE;
    RETURN FOUND AND CASE fence.mode
        WHEN 5 THEN held.available_at IS NOT NULL
        WHEN 6 THEN held.available_at IS NULL
        ELSE noetl.fence_holds(fence, held.attempt, held.lease_token, held.lease_until)
             AND (fence.mode <> 3 OR held.available_at <= clock_timestamp())
    END;
END
$$;
COMMENT ON FUNCTION noetl.task_fence IS
    'Locks a task and tells whether its lease is as the fence says, or whether it is open (5) or has ended (6).';
REVOKE ALL ON FUNCTION noetl.task_fence FROM PUBLIC;
