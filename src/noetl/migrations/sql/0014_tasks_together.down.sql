DROP FUNCTION noetl.apply_pipelines_v1;
DROP FUNCTION noetl.complete_tasks_v1;
DROP FUNCTION noetl.claim_tasks_v1;

-- Looks at waiting events too, as revision 0013 has it.
DO $$
BEGIN
    EXECUTE replace(pg_get_functiondef('noetl.apply_pipelines_v1'::regproc), 'noetl.event AS e', 'noetl.known_event AS e');
END
$$;
