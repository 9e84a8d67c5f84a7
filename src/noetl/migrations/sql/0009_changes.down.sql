DROP FUNCTION noetl.apply_changes_v1;
DROP FUNCTION noetl.apply_backfill_v1;
DROP FUNCTION noetl.apply_invalidation_v1;
DROP TABLE noetl.backfill_partition;
DROP TABLE noetl.backfill;
DROP TABLE noetl.data_invalidation;
