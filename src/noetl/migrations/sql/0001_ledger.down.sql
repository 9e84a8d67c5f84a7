-- Removes the ledger. Roles stay: they belong to the whole server and may serve other databases of it.
DROP SCHEMA noetl CASCADE;
