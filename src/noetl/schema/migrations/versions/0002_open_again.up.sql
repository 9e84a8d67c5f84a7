ALTER TABLE noetl.api_token ADD COLUMN opened_at timestamptz;
-- policies.sql
GRANT UPDATE (revoked_at, last_used_at, opened_at) ON noetl.api_token TO noetl_runtime;
