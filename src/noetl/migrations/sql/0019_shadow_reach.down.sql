ALTER TABLE noetl.divergence DROP COLUMN began, DROP COLUMN compared;
