DROP FUNCTION noetl.apply_queries_v1;
DROP TABLE noetl.query_audit, noetl.dataset_reader;
ALTER TABLE noetl.api_token DROP COLUMN user_id;
