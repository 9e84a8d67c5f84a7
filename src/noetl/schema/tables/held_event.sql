-- A projector without a ledger can read no event twice, so it keeps here what it could not fold.
CREATE TABLE noetl.held_event (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    stream_id       text COLLATE "C" NOT NULL,
    shard           smallint NOT NULL,
    position        bigint NOT NULL,
    event           bytea NOT NULL,
    PRIMARY KEY (shard, position)
);
COMMENT ON TABLE noetl.held_event IS 'Events of broken streams that came by a stream, kept until they are folded.';
COMMENT ON COLUMN noetl.held_event.stream_id IS 'The broken stream they wait for.';
