DROP FUNCTION noetl.append_v2;
DROP FUNCTION noetl.overtaken_v1;
DROP FUNCTION noetl.lock_work_v1;
DROP FUNCTION noetl.apply_work_v1;
DROP FUNCTION noetl.broken_fences_v1;
DROP TABLE noetl.worker, noetl.catalog, noetl.frame, noetl.stage, noetl.command, noetl.execution_head;
REVOKE ALL ON SCHEMA noetl FROM noetl_reaper;
REVOKE ALL ON noetl.shard FROM noetl_reaper;
REVOKE ALL ON public.schema_revision FROM noetl_reaper;
