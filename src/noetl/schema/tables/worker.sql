CREATE TABLE noetl.worker (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    worker_id       text COLLATE "C" NOT NULL,
    pool            text NOT NULL,
    slots           integer NOT NULL,
    labels          jsonb NOT NULL DEFAULT '{}',
    registered_at   timestamptz NOT NULL DEFAULT now(),
    last_heartbeat  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, organization_id, worker_id)
);
COMMENT ON TABLE noetl.worker IS 'Workers that said they are there: an aid for people, not a fact anything relies on.';
