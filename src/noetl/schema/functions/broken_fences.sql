CREATE OR REPLACE FUNCTION noetl.broken_fences(
    p_tenant text, p_organization text, fences noetl.lease_fence[]
) RETURNS SETOF integer
    LANGUAGE plpgsql AS $$
DECLARE
    fence  noetl.lease_fence;
    held   record;
    fits   boolean;
    before uuid[] := '{}';
BEGIN
    FOREACH fence IN ARRAY fences LOOP
        CASE fence.table_name
        WHEN 'command' THEN
            SELECT attempt, lease_token, lease_until INTO held FROM noetl.command
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = fence.execution_id
              AND command_id = fence.id FOR UPDATE;
            fits := FOUND AND noetl.fence_holds(fence, held.attempt, held.lease_token, held.lease_until);
        WHEN 'frame' THEN
            SELECT attempt, lease_token, lease_until INTO held FROM noetl.frame
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = fence.execution_id
              AND frame_id = fence.id::bigint FOR UPDATE;
            fits := FOUND AND noetl.fence_holds(fence, held.attempt, held.lease_token, held.lease_until);
        WHEN 'task' THEN
            fits := noetl.task_fence(p_tenant, p_organization, fence);
        WHEN 'job' THEN
            IF cardinality(before) = 0 THEN
                -- All of them before the first is looked at, in an order of their own.
                PERFORM noetl.lock_jobs(p_tenant, p_organization,
                                        ARRAY(SELECT f.id FROM unnest(fences) AS f WHERE f.table_name = 'job'));
            END IF;
            fits := noetl.has_room(p_tenant, p_organization, fence.id::uuid, fence.attempt, before);
            before := before || fence.id::uuid;
        ELSE
            RAISE case_not_found USING MESSAGE = format('nothing is known of a fence on %s', fence.table_name);
        END CASE;
        IF fits IS NOT TRUE THEN
            RETURN NEXT fence.grp;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.broken_fences IS
    'Locks the rows that fences name, in the order given, and returns the groups of those that are not as they say.';
REVOKE ALL ON FUNCTION noetl.broken_fences FROM PUBLIC;
