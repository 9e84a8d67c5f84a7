CREATE TABLE noetl.ledger_identity (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    id       uuid NOT NULL DEFAULT gen_random_uuid()
);
COMMENT ON TABLE noetl.ledger_identity IS 'Which ledger this is: a signed head names it, so that heads of two are not confused.';
INSERT INTO noetl.ledger_identity DEFAULT VALUES;
