CREATE TABLE noetl.shard_lease (
    role         text NOT NULL CHECK (role IN ('relay', 'projector', 'materializer', 'shadow')),
    shard        smallint NOT NULL,
    holder       text,
    attempt      integer NOT NULL DEFAULT 0,
    lease_token  uuid,
    lease_until  timestamptz,
    heartbeat_at timestamptz,
    PRIMARY KEY (role, shard)
) WITH (fillfactor = 50);
COMMENT ON TABLE noetl.shard_lease IS 'Which process has a shard in a role; every write for the shard is fenced by the token.';
INSERT INTO noetl.shard_lease (role, shard)
SELECT r, s FROM unnest(ARRAY['relay', 'projector', 'materializer', 'shadow']) AS r, generate_series(0, 15) AS s;
