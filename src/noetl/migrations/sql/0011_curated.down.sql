DROP FUNCTION noetl.take_curated_answer_v1;
DROP TABLE noetl.curated_answer, noetl.curated_secret;
-- Tokens of a role that is gone admit nobody; the owner removes them in all organizations.
ALTER TABLE noetl.api_token NO FORCE ROW LEVEL SECURITY;
DELETE FROM noetl.api_token WHERE role = 'operator';
ALTER TABLE noetl.api_token FORCE ROW LEVEL SECURITY;
ALTER TABLE noetl.api_token DROP CONSTRAINT api_token_role_check;
ALTER TABLE noetl.api_token ADD CONSTRAINT api_token_role_check CHECK (role IN ('reader', 'writer', 'admin', 'worker'));
REVOKE ALL ON SCHEMA noetl FROM noetl_operator;
