CREATE OR REPLACE FUNCTION noetl.lock_jobs(p_tenant text, p_organization text, p_jobs text[]) RETURNS void
    LANGUAGE sql AS $$
    SELECT FROM noetl.job AS held
    WHERE held.tenant_id = p_tenant AND held.organization_id = p_organization
      AND held.generation IN (SELECT named.generation FROM noetl.job AS named WHERE named.tenant_id = p_tenant
                              AND named.organization_id = p_organization AND named.job_id = ANY (p_jobs::uuid[]))
    ORDER BY held.generation, held.job_id FOR UPDATE OF held
$$;
COMMENT ON FUNCTION noetl.lock_jobs IS
    'Locks the jobs of every version that share a generation with these: who counts its running tasks is alone.';
REVOKE ALL ON FUNCTION noetl.lock_jobs FROM PUBLIC;
