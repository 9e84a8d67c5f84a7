-- What brings committed events to others: shards held by relays, projectors and materializers, how far each stream is
-- filled, how far each durable reader is, and which epochs projections have closed. None of it says anything about a
-- tenant, and all of it can be lost: it is found again from the ledger.
DO $$
DECLARE
    role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['noetl_relay', 'noetl_materializer'] LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I LOGIN NOINHERIT NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS', role_name);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL; -- roles belong to the whole server: another database of it made this one
        END;
        IF current_setting('server_version_num')::integer < 160000 THEN
            IF NOT pg_has_role(current_user, role_name, 'MEMBER') THEN
                EXECUTE format('GRANT %I TO current_user', role_name);
            END IF;
        ELSIF NOT pg_has_role(current_user, role_name, 'SET') THEN
            EXECUTE format('GRANT %I TO current_user WITH SET TRUE, INHERIT FALSE', role_name);
        END IF;
        EXECUTE format('GRANT USAGE ON SCHEMA noetl TO %I', role_name);
    END LOOP;
END
$$;

CREATE TABLE noetl.shard_holder (
    role         text NOT NULL CHECK (role IN ('relay', 'projector', 'materializer')),
    holder       text NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (role, holder)
);
COMMENT ON TABLE noetl.shard_holder IS 'Processes that want shards in a role, alive as long as they say so.';

CREATE TABLE noetl.shard_lease (
    role         text NOT NULL CHECK (role IN ('relay', 'projector', 'materializer')),
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
SELECT r, s FROM unnest(ARRAY['relay', 'projector', 'materializer']) AS r, generate_series(0, 15) AS s;

CREATE TABLE noetl.relay_cursor (
    stream_name    text NOT NULL,
    shard          smallint NOT NULL,
    position       bigint NOT NULL DEFAULT 0,
    stream_created text,
    stream_sequence bigint NOT NULL DEFAULT 0,
    updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (stream_name, shard)
);
COMMENT ON TABLE noetl.relay_cursor IS
    'Up to which position a shard was published to a stream, to which making of it, and how far that had acknowledged.';

CREATE TABLE noetl.stream_durable (
    name       text NOT NULL,
    durable    text NOT NULL,
    shard      smallint NOT NULL,
    position   bigint NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, durable, shard)
);
COMMENT ON TABLE noetl.stream_durable IS 'What durable readers of the ledger as a stream have acknowledged.';

CREATE TABLE noetl.projection_epoch (
    shard      smallint NOT NULL,
    epoch      bigint NOT NULL,
    position   bigint NOT NULL,
    executions jsonb NOT NULL,
    closed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    told       boolean NOT NULL DEFAULT false,
    PRIMARY KEY (shard, epoch)
);
COMMENT ON TABLE noetl.projection_epoch IS
    'Barriers of projections: all events up to the position are in, and these executions moved since the last one.';

-- Each role changes its own rows and nobody else's.
ALTER TABLE noetl.shard_holder ENABLE ROW LEVEL SECURITY;
ALTER TABLE noetl.shard_holder FORCE ROW LEVEL SECURITY;
ALTER TABLE noetl.shard_lease ENABLE ROW LEVEL SECURITY;
ALTER TABLE noetl.shard_lease FORCE ROW LEVEL SECURITY;
CREATE POLICY seen ON noetl.shard_holder FOR SELECT USING (true);
CREATE POLICY seen ON noetl.shard_lease FOR SELECT USING (true);
CREATE POLICY own ON noetl.shard_holder TO noetl_relay, noetl_projector, noetl_materializer
    USING (role = substring(current_user FROM 7)) WITH CHECK (role = substring(current_user FROM 7));
CREATE POLICY own ON noetl.shard_lease TO noetl_relay, noetl_projector, noetl_materializer
    USING (role = substring(current_user FROM 7)) WITH CHECK (role = substring(current_user FROM 7));
GRANT SELECT ON noetl.shard_holder, noetl.shard_lease, noetl.relay_cursor, noetl.stream_durable
    TO noetl_runtime, noetl_projector, noetl_retention, noetl_relay, noetl_materializer;
GRANT INSERT, UPDATE, DELETE ON noetl.shard_holder TO noetl_projector, noetl_relay, noetl_materializer;
GRANT UPDATE ON noetl.shard_lease TO noetl_projector, noetl_relay, noetl_materializer;
GRANT INSERT, UPDATE, DELETE ON noetl.relay_cursor TO noetl_relay;
GRANT INSERT, UPDATE, DELETE ON noetl.stream_durable TO noetl_projector, noetl_relay, noetl_materializer, noetl_runtime;
-- It names executions of all tenants, so only those see it who see their events anyway.
GRANT SELECT, INSERT, UPDATE, DELETE ON noetl.projection_epoch TO noetl_projector;

GRANT SELECT ON public.schema_revision, noetl.shard TO noetl_relay, noetl_materializer;
GRANT SELECT ON noetl.event TO noetl_relay, noetl_materializer;
CREATE POLICY relayed ON noetl.event FOR SELECT TO noetl_relay, noetl_materializer USING (true);

-- Only the rebuild of a shard looked here, which reads and writes everything anyway; every projected reference paid for it.
DROP INDEX noetl.idx_result_ref_shard;
