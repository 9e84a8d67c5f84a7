-- What the append calls, with the rows of pipelines besides.
CREATE OR REPLACE FUNCTION noetl.broken_fences(
    p_tenant text, p_organization text, f_group integer[], f_table text[], f_execution bigint[], f_id text[],
    f_attempt integer[], f_token uuid[], f_mode smallint[]
) RETURNS SETOF integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held  record;
    fits  boolean;
    before uuid[] := '{}';
BEGIN
    IF 'job' = ANY (f_table) THEN
        PERFORM noetl.lock_jobs(p_tenant, p_organization, ARRAY(
            SELECT f.id FROM unnest(f_table, f_id) AS f (name, id) WHERE f.name = 'job'));
    END IF;
    FOR number IN 1..cardinality(f_group) LOOP
        IF f_table[number] = 'job' THEN
            fits := noetl.has_room(p_tenant, p_organization, f_id[number]::uuid, f_attempt[number], before);
            before := before || f_id[number]::uuid;
            IF fits IS NOT TRUE THEN
                RETURN NEXT f_group[number];
            END IF;
            CONTINUE;
        ELSIF f_table[number] = 'task' THEN
            IF noetl.task_fence(p_tenant, p_organization, f_id[number]::uuid, f_attempt[number], f_token[number],
                                   f_mode[number]) IS NOT TRUE THEN
                RETURN NEXT f_group[number];
            END IF;
            CONTINUE;
        ELSIF f_table[number] = 'command' THEN
            SELECT status, attempt, lease_token, lease_until INTO held FROM noetl.command
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = f_execution[number]
              AND command_id = f_id[number] FOR UPDATE;
        ELSE
            SELECT status, attempt, lease_token, lease_until INTO held FROM noetl.frame
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = f_execution[number]
              AND frame_id = f_id[number]::bigint FOR UPDATE;
        END IF;
        fits := FOUND AND CASE f_mode[number]
            WHEN 1 THEN held.attempt = f_attempt[number] AND held.lease_token = f_token[number]
                        AND held.lease_until > clock_timestamp()
            WHEN 2 THEN held.attempt = f_attempt[number] AND held.lease_token = f_token[number]
                        AND held.lease_until <= clock_timestamp()
            ELSE held.attempt = f_attempt[number] AND held.lease_token IS NULL
        END;
        IF fits IS NOT TRUE THEN
            RETURN NEXT f_group[number];
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.broken_fences IS
    'Locks the leases that groups rely on and names the groups whose lease is not theirs.';
REVOKE ALL ON FUNCTION noetl.broken_fences FROM PUBLIC;
