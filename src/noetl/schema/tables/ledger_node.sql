CREATE TABLE noetl.ledger_node (
    shard  smallint NOT NULL,
    level  smallint NOT NULL,
    number bigint NOT NULL,
    hash   bytea NOT NULL,
    PRIMARY KEY (shard, level, number)
);
COMMENT ON TABLE noetl.ledger_node IS
    'Roots of complete subtrees of each shard''s Merkle tree (RFC 9162), from 256 leaves on; made of links, and of nothing else.';
COMMENT ON COLUMN noetl.ledger_node.level IS 'The subtree has two to this power leaves.';
COMMENT ON COLUMN noetl.ledger_node.number IS 'Which of the subtrees of its level it is, from 0.';
