DROP FUNCTION noetl.sealed_rows_v1();
DROP FUNCTION noetl.token_scope_v1(bytea);
DROP TABLE noetl.api_token;
DROP TABLE noetl.keychain;
DROP TABLE noetl.credential;
