CREATE OR REPLACE FUNCTION noetl.gone_generations() RETURNS SETOF uuid
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.generation FROM noetl.retired_generation AS r GROUP BY r.generation
    HAVING count(r.purged_at) = (SELECT count(*) FROM noetl.dataset_version AS g WHERE g.generation = r.generation)
$$;
COMMENT ON FUNCTION noetl.gone_generations IS 'The builds of jobs of which nothing is kept, of no output.';
REVOKE ALL ON FUNCTION noetl.gone_generations FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.gone_generations TO noetl_runtime;
