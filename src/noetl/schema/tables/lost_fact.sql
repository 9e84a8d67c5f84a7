-- A loss is known to the node whose notes have it. It is recorded here, so that every node tells of it until somebody
-- acknowledges it.
CREATE TABLE noetl.lost_fact (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    event_id        bigint NOT NULL,
    execution_id    bigint NOT NULL,
    shard           smallint NOT NULL,
    sequence        bigint NOT NULL,
    stream_created  text NOT NULL,
    recorded_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    acknowledged_at timestamptz,
    PRIMARY KEY (tenant_id, organization_id, event_id)
);
COMMENT ON TABLE noetl.lost_fact IS 'Facts that the stream acknowledged and lost before they were in the ledger.';
COMMENT ON COLUMN noetl.lost_fact.acknowledged_at IS 'When somebody acknowledged the loss; from then on nobody tells of it.';
CREATE INDEX idx_lost_fact_told ON noetl.lost_fact (event_id) WHERE acknowledged_at IS NULL;
