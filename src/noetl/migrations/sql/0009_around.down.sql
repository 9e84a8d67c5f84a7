DROP FUNCTION noetl.apply_work_v1;
ALTER FUNCTION noetl.apply_open_work_v1 RENAME TO apply_work_v1;
DROP FUNCTION noetl.rows_around_v1;
