CREATE OR REPLACE FUNCTION noetl.has_room(
    p_tenant text, p_organization text, p_job uuid, p_limit integer, p_before uuid[]
) RETURNS boolean
    LANGUAGE sql AS $$
    -- Claims that stand before this one in the same call count as running.
    SELECT (SELECT count(*) FROM noetl.task AS busy WHERE busy.tenant_id = p_tenant
              AND busy.organization_id = p_organization AND busy.generation = own.generation AND busy.status = 'Running')
         + (SELECT count(*) FROM unnest(p_before) AS b (job_id) JOIN noetl.job AS other ON other.tenant_id = p_tenant
              AND other.organization_id = p_organization AND other.job_id = b.job_id
            WHERE other.generation = own.generation) < p_limit
    FROM noetl.job AS own
    WHERE own.tenant_id = p_tenant AND own.organization_id = p_organization AND own.job_id = p_job
$$;
COMMENT ON FUNCTION noetl.has_room IS
    'Tells whether fewer tasks of a job''s generation run than its limit allows.';
REVOKE ALL ON FUNCTION noetl.has_room FROM PUBLIC;
