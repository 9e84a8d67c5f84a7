-- Whoever can read it can read the rows themselves, so it says nothing new to them; to all others it is out of reach.
CREATE TABLE noetl.curated_secret (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    secret   bytea NOT NULL
);
COMMENT ON TABLE noetl.curated_secret IS
    'What hashes in curated views are keyed with: made once for this installation, never shown.';
INSERT INTO noetl.curated_secret (secret)
VALUES (sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())));
