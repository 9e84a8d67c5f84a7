DROP FUNCTION noetl.apply_lineage_v1;
DROP TABLE noetl.openlineage_cursor, noetl.column_lineage, noetl.dataset_lineage;
