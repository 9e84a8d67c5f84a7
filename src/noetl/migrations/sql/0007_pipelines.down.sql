-- The append knows commands and frames alone, as before: its parts are made anew from their own migration.
DROP FUNCTION noetl.broken_fences_v1;
DROP FUNCTION noetl.apply_work_v1;
DROP FUNCTION noetl.lock_work_v1;
DROP FUNCTION noetl.overtaken_v1;
DROP FUNCTION noetl.task_fence_v1;
DROP FUNCTION noetl.has_room_v1;
DROP FUNCTION noetl.lock_jobs_v1;
DROP FUNCTION noetl.apply_pipelines_v1;
DROP FUNCTION noetl.apply_people_v1;
DROP FUNCTION noetl.apply_task_v1;
DROP FUNCTION noetl.create_task_v1;
DROP FUNCTION noetl.apply_partition_v1;
DROP FUNCTION noetl.apply_dag_v1;
DROP FUNCTION noetl.put_outbox_v1;
DROP VIEW noetl.tenant;
DROP TABLE noetl.org_role_membership, noetl.org_role, noetl.app_user, noetl.org;
DROP TABLE noetl.outbox, noetl.operator_state, noetl.dataset_cursor, noetl.task_input, noetl.task,
    noetl.partition_version, noetl.dataset_schema, noetl.dataset_version, noetl.dataset, noetl.job,
    noetl.dag_version_dataset, noetl.dag_current_version, noetl.dag_version;
