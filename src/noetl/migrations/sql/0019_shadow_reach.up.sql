-- A proof says also how much it covers: where the shadow began in each shard, and how many events since then it compared.
ALTER TABLE noetl.divergence ADD COLUMN began bigint NOT NULL DEFAULT 0, ADD COLUMN compared bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN noetl.divergence.began IS 'The head of the shard when the shadow began there.';
COMMENT ON COLUMN noetl.divergence.compared IS 'Events behind that head that were compared, whatever came of it.';
-- What was compared until now came without a gap, or is noted as missing.
UPDATE noetl.divergence SET compared = seen - redelivered, began = greatest(sequence - (seen - redelivered), 0);
