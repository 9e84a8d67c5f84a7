CREATE TABLE noetl.ledger_head (
    shard     smallint NOT NULL,
    size      bigint NOT NULL,
    head      json NOT NULL,
    signed_at timestamptz NOT NULL,
    PRIMARY KEY (shard, size)
);
COMMENT ON TABLE noetl.ledger_head IS
    'Signed heads of the trees. Only a copy kept elsewhere binds whoever can write this table.';
