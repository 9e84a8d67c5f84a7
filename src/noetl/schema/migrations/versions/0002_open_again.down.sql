ALTER TABLE noetl.api_token DROP COLUMN opened_at;
