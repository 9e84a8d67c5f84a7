-- Data pipelines: DAG versions, jobs, datasets with their generations and partitions, tasks, cursors and the outbox; and
-- the people of an organization.
--
-- Every row follows from the events of one stream in their order (cursors: from the greatest version any task named), so
-- that folding the ledger gives them anew; all but the time a lease lasts, which heartbeats move, and the delivery marks
-- of the outbox. Nobody writes these rows but the append, in the transaction of the events that say so.

CREATE TABLE noetl.dag_version (
    tenant_id           text COLLATE "C" NOT NULL,
    organization_id     text COLLATE "C" NOT NULL,
    dag_version_id      uuid NOT NULL,
    dag                 text COLLATE "C" NOT NULL,
    yaml_hash           text COLLATE "C" NOT NULL,
    bundle_digest       text COLLATE "C" NOT NULL,
    code_digest         text COLLATE "C" NOT NULL,
    bundle_ref          jsonb NOT NULL,
    pointers            jsonb NOT NULL,
    publish             jsonb NOT NULL,
    built               jsonb NOT NULL,
    status              text NOT NULL CHECK (status IN ('building', 'ready', 'failed', 'active', 'retired')),
    error               text,
    deploy_execution_id bigint NOT NULL,
    created_at          timestamptz NOT NULL,
    ready_at            timestamptz,
    activated_at        timestamptz,
    PRIMARY KEY (tenant_id, organization_id, dag_version_id)
);
COMMENT ON TABLE noetl.dag_version IS 'Versions of DAGs: what they are made of, their pointer sets, and how far they are.';
-- Indexes begin with what tells rows apart: one that began with the key's first columns would be taken for single rows
-- by a planner that has no statistics yet.
CREATE INDEX idx_dag_version_dag ON noetl.dag_version (dag, created_at, tenant_id, organization_id);

CREATE TABLE noetl.dag_current_version (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    dag             text COLLATE "C" NOT NULL,
    dag_version_id  uuid NOT NULL,
    updated_at      timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, dag)
);
COMMENT ON TABLE noetl.dag_current_version IS 'The version that serves readers: one row switches all datasets of a DAG at once.';

CREATE TABLE noetl.dag_version_dataset (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    dag_version_id  uuid NOT NULL,
    dataset_uuid    uuid NOT NULL,
    dataset_version uuid NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, dag_version_id, dataset_uuid)
);
COMMENT ON TABLE noetl.dag_version_dataset IS 'The pointer sets: which generation of each dataset a version of a DAG has.';
CREATE INDEX idx_dag_version_dataset_generation
    ON noetl.dag_version_dataset (dataset_version, tenant_id, organization_id);

CREATE TABLE noetl.job (
    tenant_id          text COLLATE "C" NOT NULL,
    organization_id    text COLLATE "C" NOT NULL,
    job_id             uuid NOT NULL,
    dag_version_id     uuid NOT NULL,
    dag                text COLLATE "C" NOT NULL,
    name               text COLLATE "C" NOT NULL,
    generation         uuid NOT NULL,
    job_hash           text COLLATE "C" NOT NULL,
    activation         text NOT NULL,
    runtime            text NOT NULL,
    operator           text NOT NULL,
    execution_strategy text,
    update_strategy    text NOT NULL,
    max_concurrency    integer,
    max_attempts       integer NOT NULL,
    timeout_seconds    double precision,
    lease_seconds      double precision NOT NULL,
    definition         jsonb NOT NULL,
    inputs             jsonb NOT NULL,
    input_datasets     uuid[] NOT NULL,
    output_datasets    uuid[] NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, job_id)
);
COMMENT ON TABLE noetl.job IS 'The jobs of every version of a DAG; jobs of equal generation build the same data.';
CREATE UNIQUE INDEX uidx_job_version_name ON noetl.job (dag_version_id, name, tenant_id, organization_id);
CREATE INDEX idx_job_generation ON noetl.job (generation, tenant_id, organization_id);

CREATE TABLE noetl.dataset (
    tenant_id             text COLLATE "C" NOT NULL,
    organization_id       text COLLATE "C" NOT NULL,
    dataset_uuid          uuid NOT NULL,
    name                  text COLLATE "C" NOT NULL,
    producer_dag          text COLLATE "C" NOT NULL,
    producer_job          text COLLATE "C" NOT NULL,
    producer_output_index integer NOT NULL,
    published             boolean NOT NULL,
    read_roles            text[] NOT NULL DEFAULT '{}',
    created_at            timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, dataset_uuid),
    -- Judged at the end: one deploy may let two datasets change their names.
    CONSTRAINT dataset_name_key UNIQUE (tenant_id, organization_id, name) DEFERRABLE INITIALLY DEFERRED
);
COMMENT ON TABLE noetl.dataset IS 'What jobs build, by name; its data are in its generations.';

CREATE TABLE noetl.dataset_version (
    tenant_id        text COLLATE "C" NOT NULL,
    organization_id  text COLLATE "C" NOT NULL,
    dataset_version  uuid NOT NULL,
    dataset_uuid     uuid NOT NULL,
    generation       uuid NOT NULL,
    config_hash      text COLLATE "C" NOT NULL,
    storage_location text NOT NULL,
    partition_by     jsonb NOT NULL,
    range_start      bigint,
    range_end        bigint,
    created_at       timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, dataset_version)
);
COMMENT ON TABLE noetl.dataset_version IS 'Generations: one build of a dataset each, written beside the others.';
CREATE INDEX idx_dataset_version_dataset ON noetl.dataset_version (dataset_uuid, tenant_id, organization_id);
CREATE INDEX idx_dataset_version_generation ON noetl.dataset_version (generation, tenant_id, organization_id);

CREATE TABLE noetl.dataset_schema (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    dataset_version uuid NOT NULL,
    version         bigint NOT NULL,
    dataset_uuid    uuid NOT NULL,
    schema          jsonb NOT NULL,
    schema_hash     text COLLATE "C" NOT NULL,
    change          text NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, dataset_version, version)
);
COMMENT ON TABLE noetl.dataset_schema IS 'The columns of a generation, each time they changed; the greatest version holds.';

CREATE TABLE noetl.partition_version (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    dataset_version uuid NOT NULL,
    partition_key   text COLLATE "C" NOT NULL,
    version         bigint NOT NULL,
    dataset_uuid    uuid NOT NULL,
    current         boolean NOT NULL,
    dropped         boolean NOT NULL,
    manifest_ref    jsonb,
    row_count       bigint NOT NULL,
    bytes           bigint NOT NULL,
    files           integer NOT NULL,
    schema_hash     text COLLATE "C",
    content_digest  text COLLATE "C",
    task_id         uuid NOT NULL,
    attempt         integer,
    committed_at    timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, dataset_version, partition_key, version)
);
COMMENT ON TABLE noetl.partition_version IS 'What was visible of a partition and when; `current` marks the greatest version.';
CREATE UNIQUE INDEX uidx_partition_version_current
    ON noetl.partition_version (dataset_version, partition_key, tenant_id, organization_id) WHERE current;

CREATE TABLE noetl.task (
    tenant_id        text COLLATE "C" NOT NULL,
    organization_id  text COLLATE "C" NOT NULL,
    task_id          uuid NOT NULL,
    job_id           uuid NOT NULL,
    dag_version_id   uuid NOT NULL,
    dag              text COLLATE "C" NOT NULL,
    job              text COLLATE "C" NOT NULL,
    generation       uuid NOT NULL,
    execution_id     bigint NOT NULL,
    dedupe_key       text COLLATE "C" NOT NULL,
    partition_key    text COLLATE "C" NOT NULL,
    status           text NOT NULL
        CHECK (status IN ('Queued', 'Running', 'Completed', 'Skipped', 'Failed', 'Canceled')),
    attempt          integer NOT NULL,
    max_attempts     integer NOT NULL,
    runtime          text COLLATE "C" NOT NULL,
    memo_key         text COLLATE "C",
    inputs           jsonb NOT NULL,
    inputs_ref       jsonb,
    worker           text,
    lease_token      uuid,
    lease_seconds    double precision NOT NULL,
    lease_until      timestamptz,
    last_heartbeat   timestamptz,
    available_at     timestamptz,
    cancel_requested boolean NOT NULL,
    application_id   text,
    job_tag          text,
    error            text,
    outputs          jsonb,
    logs_ref         jsonb,
    skipped_as       uuid,
    created_event_id bigint NOT NULL,
    created_at       timestamptz NOT NULL,
    started_at       timestamptz,
    ended_at         timestamptz,
    PRIMARY KEY (tenant_id, organization_id, task_id)
) WITH (fillfactor = 70);
COMMENT ON TABLE noetl.task IS 'Units of jobs'' work. One that has `available_at` is open: it waits, runs, or will be tried again.';
CREATE UNIQUE INDEX uidx_task_dedupe ON noetl.task (generation, dedupe_key, tenant_id, organization_id);
CREATE INDEX idx_task_free ON noetl.task (runtime, available_at, created_event_id, tenant_id, organization_id)
    WHERE available_at IS NOT NULL AND lease_token IS NULL;
CREATE INDEX idx_task_running ON noetl.task (generation, tenant_id, organization_id) WHERE status = 'Running';
CREATE INDEX idx_task_execution ON noetl.task (execution_id, available_at, tenant_id, organization_id);
CREATE INDEX idx_task_memo ON noetl.task (memo_key, tenant_id, organization_id) WHERE status = 'Completed';

CREATE TABLE noetl.task_input (
    tenant_id             text COLLATE "C" NOT NULL,
    organization_id       text COLLATE "C" NOT NULL,
    task_id               uuid NOT NULL,
    input_dataset_uuid    uuid NOT NULL,
    input_dataset_version uuid NOT NULL,
    input_partition_key   text COLLATE "C" NOT NULL,
    input_version         bigint NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, task_id, input_dataset_version, input_partition_key, input_version)
);
COMMENT ON TABLE noetl.task_input IS 'The partitions a task reads, pinned; of a task whose inputs are a payload there are none here.';
CREATE INDEX idx_task_input_dataset
    ON noetl.task_input (input_dataset_version, input_partition_key, tenant_id, organization_id);

CREATE TABLE noetl.dataset_cursor (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    dataset_version uuid NOT NULL,
    consumer        uuid NOT NULL,
    partition_key   text COLLATE "C" NOT NULL,
    dataset_uuid    uuid NOT NULL,
    version         bigint NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, consumer, dataset_version, partition_key)
);
COMMENT ON TABLE noetl.dataset_cursor IS 'How far a generation has consumed the partitions it reads.';

CREATE TABLE noetl.operator_state (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    generation      uuid NOT NULL,
    state_key       text COLLATE "C" NOT NULL,
    state           jsonb NOT NULL,
    version         bigint NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, generation, state_key)
);
COMMENT ON TABLE noetl.operator_state IS 'What operators keep between tasks; `version` is that of the stream it was said in.';

CREATE TABLE noetl.outbox (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    outbox_id       uuid NOT NULL,
    kind            text COLLATE "C" NOT NULL CHECK (kind IN ('enqueue_task', 'route_event')),
    payload         jsonb NOT NULL,
    execution_id    bigint NOT NULL,
    available_at    timestamptz NOT NULL,
    created_at      timestamptz NOT NULL,
    status          text NOT NULL DEFAULT 'Pending' CHECK (status IN ('Pending', 'Done', 'Dead')),
    attempts        integer NOT NULL DEFAULT 0,
    last_error      text,
    lease_token     uuid,
    lease_until     timestamptz,
    processed_at    timestamptz,
    PRIMARY KEY (tenant_id, organization_id, outbox_id)
) WITH (fillfactor = 70);
COMMENT ON TABLE noetl.outbox IS 'What has to follow from an event: waking a worker, or routing a change to the jobs that read it.';
CREATE INDEX idx_outbox_pending ON noetl.outbox (kind, available_at, tenant_id, organization_id) WHERE status = 'Pending';
CREATE INDEX idx_outbox_execution ON noetl.outbox (execution_id, tenant_id, organization_id) WHERE status = 'Pending';

CREATE TABLE noetl.org (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    name            text NOT NULL,
    tenant_name     text NOT NULL,
    settings        jsonb NOT NULL,
    created_at      timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id)
);
COMMENT ON TABLE noetl.org IS 'Organizations that were given a name.';

CREATE VIEW noetl.tenant WITH (security_invoker = true) AS
SELECT tenant_id, max(tenant_name) AS name FROM noetl.org GROUP BY tenant_id;
COMMENT ON VIEW noetl.tenant IS 'Who has organizations here, as the organizations that may be seen call them.';
GRANT SELECT ON noetl.tenant TO noetl_runtime;

CREATE TABLE noetl.app_user (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    user_id         uuid NOT NULL,
    external_id     text COLLATE "C",
    email           text COLLATE "C" NOT NULL,
    role            text NOT NULL CHECK (role IN ('reader', 'writer', 'admin')),
    added_at        timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, user_id)
);
COMMENT ON TABLE noetl.app_user IS 'The people of an organization.';
CREATE UNIQUE INDEX uidx_app_user_email ON noetl.app_user (email, tenant_id, organization_id);

CREATE TABLE noetl.org_role (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    role_id         uuid NOT NULL,
    slug            text COLLATE "C" NOT NULL,
    name            text NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, role_id)
);
COMMENT ON TABLE noetl.org_role IS 'Roles an organization made for itself, such as who may read a dataset.';
CREATE UNIQUE INDEX uidx_org_role_slug ON noetl.org_role (slug, tenant_id, organization_id);

CREATE TABLE noetl.org_role_membership (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    role_id         uuid NOT NULL,
    user_id         uuid NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, role_id, user_id)
);
COMMENT ON TABLE noetl.org_role_membership IS 'Who has which role.';
CREATE INDEX idx_org_role_membership_user ON noetl.org_role_membership (user_id, tenant_id, organization_id);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['dag_version', 'dag_current_version', 'dag_version_dataset', 'job', 'dataset',
                                'dataset_version', 'dataset_schema', 'partition_version', 'task', 'task_input',
                                'dataset_cursor', 'operator_state', 'outbox', 'org', 'app_user', 'org_role',
                                'org_role_membership'] LOOP
        EXECUTE format('ALTER TABLE noetl.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE noetl.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY scoped ON noetl.%I TO noetl_runtime, current_user
            USING (tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()))', name);
        EXECUTE format('GRANT SELECT ON noetl.%I TO noetl_runtime', name);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['dag_version', 'job', 'task', 'outbox'] LOOP
        EXECUTE format('CREATE POLICY all_tenants ON noetl.%I FOR SELECT TO noetl_reaper USING (true)', name);
        EXECUTE format('GRANT SELECT ON noetl.%I TO noetl_reaper', name);
    END LOOP;
END
$$;
GRANT UPDATE (lease_until, last_heartbeat) ON noetl.task TO noetl_runtime;
GRANT UPDATE (status, attempts, last_error, lease_token, lease_until, processed_at) ON noetl.outbox TO noetl_runtime;

-- The functions below serve the append and run in its rights and settings; nobody else may call them.
CREATE FUNCTION noetl.put_outbox_v1(said noetl.event, p_name text, p_kind text, p_payload jsonb, p_delay double precision)
    RETURNS void LANGUAGE sql AS $$
    INSERT INTO noetl.outbox (tenant_id, organization_id, outbox_id, kind, payload, execution_id, available_at, created_at)
    VALUES (said.tenant_id, said.organization_id,
            encode(substring(sha256(convert_to(p_name, 'UTF8')) FOR 16), 'hex')::uuid, p_kind, p_payload,
            said.execution_id, said.ingest_time + make_interval(secs => p_delay), said.ingest_time)
    -- A task that is cancelled and then retried by hand awaits the same attempt a second time.
    ON CONFLICT (tenant_id, organization_id, outbox_id) DO UPDATE
        SET execution_id = excluded.execution_id, available_at = excluded.available_at, created_at = excluded.created_at,
            status = 'Pending', attempts = 0, last_error = NULL, lease_token = NULL, lease_until = NULL,
            processed_at = NULL
$$;
COMMENT ON FUNCTION noetl.put_outbox_v1 IS 'Records what has to follow from an event, under an id that its name alone decides.';
REVOKE ALL ON FUNCTION noetl.put_outbox_v1 FROM PUBLIC;

CREATE FUNCTION noetl.apply_dag_v1(said noetl.event) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    meta    jsonb := coalesce(said.meta::jsonb, '{}');
    context jsonb := coalesce(said.context::jsonb, '{}');
    version uuid := (meta ->> 'dag_version_id')::uuid;
BEGIN
    CASE said.event_type
    WHEN 'dag.version_created' THEN
        DELETE FROM noetl.dag_version_dataset WHERE tenant_id = said.tenant_id
            AND organization_id = said.organization_id AND dag_version_id = version;
        DELETE FROM noetl.dag_version WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id
            AND dag_version_id = version;
        INSERT INTO noetl.dag_version (tenant_id, organization_id, dag_version_id, dag, yaml_hash, bundle_digest,
            code_digest, bundle_ref, pointers, publish, built, status, deploy_execution_id, created_at)
        VALUES (said.tenant_id, said.organization_id, version, meta ->> 'dag', meta ->> 'yaml_hash',
            meta ->> 'bundle_digest', meta ->> 'code_digest', said.payload_ref::jsonb, context -> 'pointers',
            coalesce(context -> 'publish', '{}'), coalesce(context -> 'built', '[]'), 'building', said.execution_id,
            said.ingest_time);
        INSERT INTO noetl.dag_version_dataset (tenant_id, organization_id, dag_version_id, dataset_uuid, dataset_version)
        SELECT said.tenant_id, said.organization_id, version, p.key::uuid, p.value::uuid
        FROM jsonb_each_text(context -> 'pointers') AS p;
    WHEN 'job.registered' THEN
        DELETE FROM noetl.job WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id
            AND job_id = (meta ->> 'job_id')::uuid;
        INSERT INTO noetl.job (tenant_id, organization_id, job_id, dag_version_id, dag, name, generation, job_hash,
            activation, runtime, operator, execution_strategy, update_strategy, max_concurrency, max_attempts,
            timeout_seconds, lease_seconds, definition, inputs, input_datasets, output_datasets)
        VALUES (said.tenant_id, said.organization_id, (meta ->> 'job_id')::uuid, version, meta ->> 'dag',
            said.node_name, (meta ->> 'generation')::uuid, meta ->> 'job_hash', meta ->> 'activation',
            meta ->> 'runtime', meta ->> 'operator', meta ->> 'execution_strategy', meta ->> 'update_strategy',
            (meta ->> 'max_concurrency')::integer, (meta ->> 'max_attempts')::integer,
            (meta ->> 'timeout_seconds')::double precision, (meta ->> 'lease_seconds')::double precision,
            coalesce(context -> 'definition', '{}'), coalesce(context -> 'inputs', '[]'),
            ARRAY(SELECT DISTINCT (i ->> 'dataset_uuid')::uuid FROM jsonb_array_elements(context -> 'inputs') AS i
                  ORDER BY 1),
            ARRAY(SELECT o::uuid FROM jsonb_array_elements_text(context -> 'outputs') WITH ORDINALITY AS x (o, place)
                  ORDER BY x.place));
    WHEN 'dataset.registered' THEN
        INSERT INTO noetl.dataset AS known (tenant_id, organization_id, dataset_uuid, name, producer_dag, producer_job,
            producer_output_index, published, created_at)
        VALUES (said.tenant_id, said.organization_id, (meta ->> 'dataset_uuid')::uuid, meta ->> 'name',
            meta ->> 'dag', meta ->> 'job', (meta ->> 'output')::integer,
            coalesce((meta ->> 'published')::boolean, false), said.ingest_time)
        ON CONFLICT (tenant_id, organization_id, dataset_uuid) DO UPDATE
            SET name = excluded.name, published = excluded.published;
    WHEN 'dataset.generation_created' THEN
        INSERT INTO noetl.dataset_version (tenant_id, organization_id, dataset_version, dataset_uuid, generation,
            config_hash, storage_location, partition_by, range_start, range_end, created_at)
        VALUES (said.tenant_id, said.organization_id, (meta ->> 'dataset_version')::uuid,
            (meta ->> 'dataset_uuid')::uuid, (meta ->> 'generation')::uuid, meta ->> 'config_hash',
            meta ->> 'storage_location', coalesce(context -> 'partition_by', '[]'), (meta ->> 'range_start')::bigint,
            (meta ->> 'range_end')::bigint, said.ingest_time)
        ON CONFLICT (tenant_id, organization_id, dataset_version) DO NOTHING;
    WHEN 'dag.ready' THEN
        UPDATE noetl.dag_version SET status = 'ready', ready_at = said.ingest_time, error = NULL
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND dag_version_id = version;
    WHEN 'dag.build_failed' THEN
        UPDATE noetl.dag_version SET status = 'failed', error = said.error
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND dag_version_id = version;
    ELSE -- another version is current now
        UPDATE noetl.dag_version SET status = 'retired' WHERE tenant_id = said.tenant_id
            AND organization_id = said.organization_id AND dag_version_id = (meta ->> 'previous')::uuid;
        UPDATE noetl.dag_version SET status = 'active', activated_at = said.ingest_time
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND dag_version_id = version;
        INSERT INTO noetl.dag_current_version (tenant_id, organization_id, dag, dag_version_id, updated_at)
        VALUES (said.tenant_id, said.organization_id, substring(said.stream_id FROM 5), version, said.ingest_time)
        ON CONFLICT (tenant_id, organization_id, dag) DO UPDATE
            SET dag_version_id = excluded.dag_version_id, updated_at = excluded.updated_at;
    END CASE;
END
$$;
COMMENT ON FUNCTION noetl.apply_dag_v1 IS 'Changes the rows of a DAG as an event of its stream says.';
REVOKE ALL ON FUNCTION noetl.apply_dag_v1 FROM PUBLIC;

CREATE FUNCTION noetl.apply_partition_v1(said noetl.event) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    meta jsonb := coalesce(said.meta::jsonb, '{}');
    gone boolean := said.event_type = 'partition.dropped';
BEGIN
    UPDATE noetl.partition_version SET current = false
    WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id
      AND dataset_version = (meta ->> 'dataset_version')::uuid AND partition_key = meta ->> 'partition_key' AND current;
    INSERT INTO noetl.partition_version (tenant_id, organization_id, dataset_version, partition_key, version,
        dataset_uuid, current, dropped, manifest_ref, row_count, bytes, files, schema_hash, content_digest, task_id,
        attempt, committed_at)
    VALUES (said.tenant_id, said.organization_id, (meta ->> 'dataset_version')::uuid, meta ->> 'partition_key',
        said.stream_version, (meta ->> 'dataset_uuid')::uuid, true, gone, said.payload_ref::jsonb,
        coalesce((meta ->> 'rows')::bigint, 0), coalesce((meta ->> 'bytes')::bigint, 0),
        coalesce((meta ->> 'files')::integer, 0), meta ->> 'schema_hash', meta ->> 'content_digest',
        (meta ->> 'task_id')::uuid, (meta ->> 'attempt')::integer, said.ingest_time);
    PERFORM noetl.put_outbox_v1(said,
        format('route:%s:%s:%s', (meta ->> 'dataset_version')::uuid, meta ->> 'partition_key', said.stream_version),
        'route_event',
        jsonb_build_object('dataset_uuid', (meta ->> 'dataset_uuid')::uuid, 'dataset_version',
                           (meta ->> 'dataset_version')::uuid, 'partition_key', meta ->> 'partition_key', 'version',
                           said.stream_version, 'dropped', gone), 0);
END
$$;
COMMENT ON FUNCTION noetl.apply_partition_v1 IS 'Makes what an event says of a partition its current version.';
REVOKE ALL ON FUNCTION noetl.apply_partition_v1 FROM PUBLIC;

CREATE FUNCTION noetl.create_task_v1(said noetl.event, own uuid) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    meta   jsonb := coalesce(said.meta::jsonb, '{}');
    inputs jsonb := coalesce(said.context::jsonb -> 'inputs', '[]');
BEGIN
    INSERT INTO noetl.task (tenant_id, organization_id, task_id, job_id, dag_version_id, dag, job, generation,
        execution_id, dedupe_key, partition_key, status, attempt, max_attempts, runtime, memo_key, inputs, inputs_ref,
        lease_seconds, available_at, cancel_requested, created_event_id, created_at)
    VALUES (said.tenant_id, said.organization_id, own, (meta ->> 'job_id')::uuid, (meta ->> 'dag_version_id')::uuid,
        meta ->> 'dag', meta ->> 'job', (meta ->> 'generation')::uuid, said.execution_id, meta ->> 'dedupe_key', meta ->> 'partition_key', 'Queued', 0,
        (meta ->> 'max_attempts')::integer, meta ->> 'runtime', meta ->> 'memo_key', inputs, said.payload_ref::jsonb,
        (meta ->> 'lease_seconds')::double precision, said.ingest_time, false, said.event_id, said.ingest_time)
    ON CONFLICT (tenant_id, organization_id, task_id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO noetl.task_input (tenant_id, organization_id, task_id, input_dataset_uuid, input_dataset_version,
        input_partition_key, input_version)
    SELECT DISTINCT said.tenant_id, said.organization_id, own, (i ->> 'dataset_uuid')::uuid,
        (i ->> 'dataset_version')::uuid, part ->> 0, (part ->> 1)::bigint
    FROM jsonb_array_elements(inputs) AS i, jsonb_array_elements(i -> 'parts') AS part
    ON CONFLICT DO NOTHING;
    RETURN true;
END
$$;
COMMENT ON FUNCTION noetl.create_task_v1 IS 'Makes the row of a task and of the partitions it reads, unless it stands.';
REVOKE ALL ON FUNCTION noetl.create_task_v1 FROM PUBLIC;

CREATE FUNCTION noetl.apply_task_v1(said noetl.event) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    meta   jsonb := coalesce(said.meta::jsonb, '{}');
    own    uuid := substring(said.stream_id FROM 6)::uuid;
    delay  double precision := 0;
    coming integer;
BEGIN
    CASE said.event_type
    WHEN 'task.created' THEN
        coming := CASE WHEN noetl.create_task_v1(said, own) THEN 1 END;
    WHEN 'task.claimed' THEN
        UPDATE noetl.task SET status = 'Running', attempt = (meta ->> 'attempt')::integer, worker = meta ->> 'worker',
            lease_token = (meta ->> 'lease_token')::uuid, lease_seconds = (meta ->> 'lease_seconds')::double precision,
            lease_until = said.ingest_time + make_interval(secs => (meta ->> 'lease_seconds')::double precision),
            last_heartbeat = said.ingest_time, application_id = NULL, job_tag = NULL, started_at = said.ingest_time
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND task_id = own;
    WHEN 'task.started' THEN
        UPDATE noetl.task SET application_id = meta ->> 'application_id', job_tag = meta ->> 'job_tag'
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND task_id = own;
    WHEN 'task.attempt_failed', 'task.abandoned' THEN
        delay := coalesce((meta ->> 'delay_seconds')::double precision, 0);
        UPDATE noetl.task SET status = 'Failed', lease_token = NULL, lease_until = NULL, last_heartbeat = NULL,
            available_at = said.ingest_time + make_interval(secs => delay), error = said.error,
            logs_ref = coalesce(said.payload_ref::jsonb, logs_ref), ended_at = NULL
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND task_id = own
        RETURNING attempt + 1 INTO coming;
    WHEN 'task.retried' THEN
        UPDATE noetl.task SET status = 'Queued', lease_token = NULL, lease_until = NULL, last_heartbeat = NULL,
            max_attempts = max_attempts + (meta ->> 'extra_attempts')::integer, available_at = said.ingest_time,
            cancel_requested = false, ended_at = NULL, outputs = NULL, skipped_as = NULL
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND task_id = own
        RETURNING attempt + 1 INTO coming;
    WHEN 'task.cancel_requested' THEN
        UPDATE noetl.task SET cancel_requested = true
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND task_id = own;
    ELSE -- the task has ended
        UPDATE noetl.task SET lease_token = NULL, lease_until = NULL, last_heartbeat = NULL, available_at = NULL,
            status = CASE said.event_type WHEN 'task.completed' THEN 'Completed' WHEN 'task.skipped' THEN 'Skipped'
                                          WHEN 'task.failed' THEN 'Failed' ELSE 'Canceled' END,
            error = said.error, logs_ref = coalesce(said.payload_ref::jsonb, logs_ref),
            outputs = said.context::jsonb -> 'outputs', skipped_as = (meta ->> 'as_task')::uuid,
            ended_at = said.ingest_time
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND task_id = own;
    END CASE;
    IF coming IS NOT NULL THEN
        PERFORM noetl.put_outbox_v1(said, format('task_wakeup:%s:%s', own, coming), 'enqueue_task',
                                    jsonb_build_object('task_id', own, 'attempt', coming), delay);
    END IF;
END
$$;
COMMENT ON FUNCTION noetl.apply_task_v1 IS 'Changes a task as an event of its stream says, and wakes whoever may work on it.';
REVOKE ALL ON FUNCTION noetl.apply_task_v1 FROM PUBLIC;

CREATE FUNCTION noetl.apply_people_v1(said noetl.event) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    meta   jsonb := coalesce(said.meta::jsonb, '{}');
    person uuid := (meta ->> 'user_id')::uuid;
BEGIN
    CASE said.event_type
    WHEN 'org.created' THEN
        INSERT INTO noetl.org (tenant_id, organization_id, name, tenant_name, settings, created_at)
        VALUES (said.tenant_id, said.organization_id, meta ->> 'name', coalesce(meta ->> 'tenant_name', said.tenant_id),
            '{}', said.ingest_time)
        ON CONFLICT (tenant_id, organization_id) DO UPDATE
            SET name = excluded.name, tenant_name = excluded.tenant_name;
    WHEN 'org.settings_changed' THEN
        UPDATE noetl.org SET settings = coalesce(said.context::jsonb -> 'settings', '{}')
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id;
    WHEN 'user.added' THEN
        INSERT INTO noetl.app_user (tenant_id, organization_id, user_id, external_id, email, role, added_at)
        VALUES (said.tenant_id, said.organization_id, person, meta ->> 'external_id', meta ->> 'email', meta ->> 'role',
            said.ingest_time)
        ON CONFLICT (tenant_id, organization_id, user_id) DO NOTHING;
    WHEN 'user.role_changed' THEN
        UPDATE noetl.app_user SET role = meta ->> 'role' WHERE tenant_id = said.tenant_id
            AND organization_id = said.organization_id AND user_id = person;
    WHEN 'user.removed' THEN
        DELETE FROM noetl.org_role_membership WHERE tenant_id = said.tenant_id
            AND organization_id = said.organization_id AND user_id = person;
        DELETE FROM noetl.app_user WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id
            AND user_id = person;
    WHEN 'role.created' THEN
        INSERT INTO noetl.org_role (tenant_id, organization_id, role_id, slug, name)
        VALUES (said.tenant_id, said.organization_id, (meta ->> 'role_id')::uuid, meta ->> 'slug', meta ->> 'name')
        ON CONFLICT (tenant_id, organization_id, role_id) DO UPDATE SET name = excluded.name;
    WHEN 'role.granted' THEN
        INSERT INTO noetl.org_role_membership (tenant_id, organization_id, role_id, user_id)
        VALUES (said.tenant_id, said.organization_id, (meta ->> 'role_id')::uuid, person) ON CONFLICT DO NOTHING;
    ELSE -- the role was taken away
        DELETE FROM noetl.org_role_membership WHERE tenant_id = said.tenant_id
            AND organization_id = said.organization_id AND role_id = (meta ->> 'role_id')::uuid AND user_id = person;
    END CASE;
END
$$;
COMMENT ON FUNCTION noetl.apply_people_v1 IS 'Changes who belongs to an organization as an event says.';
REVOKE ALL ON FUNCTION noetl.apply_people_v1 FROM PUBLIC;

CREATE FUNCTION noetl.apply_pipelines_v1(
    p_tenant text, p_organization text, p_execution bigint[], p_event bigint[]
) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    said    noetl.event;
    cursors jsonb := '[]';
BEGIN
    FOR place IN 1..cardinality(p_event) LOOP
        -- Asked for in the key's order, so that no plan made without statistics reads a whole execution for one event.
        SELECT e.* INTO said FROM noetl.event AS e
        WHERE e.execution_id = p_execution[place] AND e.event_id >= p_event[place] AND e.tenant_id = p_tenant
          AND e.organization_id = p_organization ORDER BY e.event_id LIMIT 1;
        CASE
        WHEN said.event_type IN ('partition.committed', 'partition.dropped') THEN
            PERFORM noetl.apply_partition_v1(said);
        WHEN said.event_type = 'dataset.schema_set' THEN
            INSERT INTO noetl.dataset_schema (tenant_id, organization_id, dataset_version, version, dataset_uuid,
                schema, schema_hash, change)
            VALUES (p_tenant, p_organization, (said.meta ->> 'dataset_version')::uuid, said.stream_version,
                (said.meta ->> 'dataset_uuid')::uuid, coalesce(said.context -> 'schema', '[]')::jsonb,
                said.meta ->> 'schema_hash', said.meta ->> 'change');
        WHEN said.event_type = 'job.state_saved' THEN
            INSERT INTO noetl.operator_state (tenant_id, organization_id, generation, state_key, state, version)
            VALUES (p_tenant, p_organization, (said.meta ->> 'generation')::uuid, said.meta ->> 'state_key',
                coalesce(said.context -> 'state', 'null')::jsonb, said.stream_version)
            ON CONFLICT (tenant_id, organization_id, generation, state_key) DO UPDATE
                SET state = excluded.state, version = excluded.version;
        WHEN starts_with(said.event_type, 'task.') THEN
            PERFORM noetl.apply_task_v1(said);
            IF said.event_type IN ('task.completed', 'task.skipped') THEN
                cursors := cursors || coalesce((said.context -> 'cursors')::jsonb, '[]');
            END IF;
        WHEN said.stream_id = 'people' THEN
            PERFORM noetl.apply_people_v1(said);
        ELSE
            PERFORM noetl.apply_dag_v1(said);
        END CASE;
    END LOOP;
    IF cursors <> '[]' THEN
        -- Several tasks may move one cursor: sorted, so that all callers lock them in one order.
        INSERT INTO noetl.dataset_cursor AS known (tenant_id, organization_id, dataset_version, consumer, partition_key,
            dataset_uuid, version)
        SELECT p_tenant, p_organization, (c ->> 'dataset_version')::uuid, (c ->> 'consumer')::uuid,
            c ->> 'partition_key', min(c ->> 'dataset_uuid')::uuid, max((c ->> 'version')::bigint)
        FROM jsonb_array_elements(cursors) AS c GROUP BY 3, 4, 5 ORDER BY 4, 3, 5
        ON CONFLICT (tenant_id, organization_id, consumer, dataset_version, partition_key) DO UPDATE
            SET version = greatest(known.version, excluded.version);
    END IF;
END
$$;
COMMENT ON FUNCTION noetl.apply_pipelines_v1 IS 'Changes the rows of pipelines as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_pipelines_v1 FROM PUBLIC;

CREATE FUNCTION noetl.lock_jobs_v1(p_tenant text, p_organization text, p_jobs text[]) RETURNS void
    LANGUAGE sql AS $$
    SELECT FROM noetl.job AS held
    WHERE held.tenant_id = p_tenant AND held.organization_id = p_organization
      AND held.generation IN (SELECT named.generation FROM noetl.job AS named WHERE named.tenant_id = p_tenant
                              AND named.organization_id = p_organization AND named.job_id = ANY (p_jobs::uuid[]))
    ORDER BY held.generation, held.job_id FOR UPDATE OF held
$$;
COMMENT ON FUNCTION noetl.lock_jobs_v1 IS
    'Locks the jobs of every version that share a generation with these: who counts its running tasks is alone.';
REVOKE ALL ON FUNCTION noetl.lock_jobs_v1 FROM PUBLIC;

CREATE FUNCTION noetl.has_room_v1(
    p_tenant text, p_organization text, p_job uuid, p_limit integer, p_before uuid[]
) RETURNS boolean
    LANGUAGE sql AS $$
    -- Claims that stand before this one in the same call count as running.
    SELECT (SELECT count(*) FROM noetl.task AS busy WHERE busy.tenant_id = p_tenant
              AND busy.organization_id = p_organization AND busy.generation = own.generation AND busy.status = 'Running')
         + (SELECT count(*) FROM unnest(p_before) AS b (job_id) JOIN noetl.job AS other ON other.tenant_id = p_tenant
              AND other.organization_id = p_organization AND other.job_id = b.job_id
            WHERE other.generation = own.generation) < p_limit
    FROM noetl.job AS own
    WHERE own.tenant_id = p_tenant AND own.organization_id = p_organization AND own.job_id = p_job
$$;
COMMENT ON FUNCTION noetl.has_room_v1 IS 'Tells whether fewer tasks of a job''s generation run than its limit allows.';
REVOKE ALL ON FUNCTION noetl.has_room_v1 FROM PUBLIC;

CREATE FUNCTION noetl.task_fence_v1(
    p_tenant text, p_organization text, p_task uuid, p_attempt integer, p_token uuid, p_mode smallint
) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    held record;
BEGIN
    SELECT status, attempt, lease_token, lease_until, available_at INTO held FROM noetl.task
    WHERE tenant_id = p_tenant AND organization_id = p_organization AND task_id = p_task FOR UPDATE;
    RETURN FOUND AND CASE p_mode
        WHEN 1 THEN held.attempt = p_attempt AND held.lease_token = p_token AND held.lease_until > clock_timestamp()
        WHEN 2 THEN held.attempt = p_attempt AND held.lease_token = p_token AND held.lease_until <= clock_timestamp()
        WHEN 3 THEN held.attempt = p_attempt AND held.lease_token IS NULL AND held.available_at <= clock_timestamp()
        WHEN 5 THEN held.available_at IS NOT NULL
        WHEN 6 THEN held.available_at IS NULL
    END;
END
$$;
COMMENT ON FUNCTION noetl.task_fence_v1 IS
    'Locks a task and tells whether its lease is held (1), has run out (2) or is free (3), or it is open (5) or ended (6).';
REVOKE ALL ON FUNCTION noetl.task_fence_v1 FROM PUBLIC;

-- What the append calls, with the rows of pipelines besides.
CREATE OR REPLACE FUNCTION noetl.broken_fences_v1(
    p_tenant text, p_organization text, f_group integer[], f_table text[], f_execution bigint[], f_id text[],
    f_attempt integer[], f_token uuid[], f_mode smallint[]
) RETURNS SETOF integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held  record;
    fits  boolean;
    before uuid[] := '{}';
BEGIN
    IF 'job' = ANY (f_table) THEN
        PERFORM noetl.lock_jobs_v1(p_tenant, p_organization, ARRAY(
            SELECT f.id FROM unnest(f_table, f_id) AS f (name, id) WHERE f.name = 'job'));
    END IF;
    FOR number IN 1..cardinality(f_group) LOOP
        IF f_table[number] = 'job' THEN
            fits := noetl.has_room_v1(p_tenant, p_organization, f_id[number]::uuid, f_attempt[number], before);
            before := before || f_id[number]::uuid;
            IF fits IS NOT TRUE THEN
                RETURN NEXT f_group[number];
            END IF;
            CONTINUE;
        ELSIF f_table[number] = 'task' THEN
            IF noetl.task_fence_v1(p_tenant, p_organization, f_id[number]::uuid, f_attempt[number], f_token[number],
                                   f_mode[number]) IS NOT TRUE THEN
                RETURN NEXT f_group[number];
            END IF;
            CONTINUE;
        ELSIF f_table[number] = 'command' THEN
            SELECT status, attempt, lease_token, lease_until INTO held FROM noetl.command
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = f_execution[number]
              AND command_id = f_id[number] FOR UPDATE;
        ELSE
            SELECT status, attempt, lease_token, lease_until INTO held FROM noetl.frame
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = f_execution[number]
              AND frame_id = f_id[number]::bigint FOR UPDATE;
        END IF;
        fits := FOUND AND CASE f_mode[number]
            WHEN 1 THEN held.attempt = f_attempt[number] AND held.lease_token = f_token[number]
                        AND held.lease_until > clock_timestamp()
            WHEN 2 THEN held.attempt = f_attempt[number] AND held.lease_token = f_token[number]
                        AND held.lease_until <= clock_timestamp()
            ELSE held.attempt = f_attempt[number] AND held.lease_token IS NULL
        END;
        IF fits IS NOT TRUE THEN
            RETURN NEXT f_group[number];
        END IF;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION noetl.apply_work_v1(
    p_tenant text, p_organization text, p_work text[], p_now timestamptz, e_written boolean[],
    e_execution bigint[], e_event bigint[], e_time timestamptz[], e_parent bigint[], e_stage bigint[], e_frame bigint[],
    e_loop bigint[], e_index bigint[], e_type text[], e_catalog text[], e_node text[], e_command text[],
    e_shard_id text[], e_meta json[], e_context json[], e_payload_ref json[]
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    said    text;
    meta    json;
    context json;
    runs    bigint[] := '{}';
    facts   bigint[] := '{}';
BEGIN
    -- Event by event, in their order: a transition is a handful of events, and one row may change twice in it.
    FOR number IN 1..cardinality(e_type) LOOP
        said := e_type[number];
        CONTINUE WHEN NOT e_written[number] OR NOT said = ANY (p_work);
        meta := coalesce(e_meta[number], '{}');
        CASE said
        WHEN 'command.issued' THEN
            INSERT INTO noetl.command (tenant_id, organization_id, execution_id, command_id, step_name, tool_kind,
                status, attempt, worker, lease_token, lease_seconds, lease_until, last_heartbeat, available_at,
                stage_id, loop_id, child_execution_id, issued_event_id)
            VALUES (p_tenant, p_organization, e_execution[number], e_command[number], e_node[number],
                meta ->> 'tool_kind',
                CASE WHEN meta ->> 'worker' IS NOT NULL THEN 'CLAIMED'
                     WHEN meta ->> 'child_execution_id' IS NOT NULL THEN 'SUSPENDED' ELSE 'PENDING' END,
                coalesce((meta ->> 'attempt')::integer, 0), meta ->> 'worker', (meta ->> 'lease_token')::uuid,
                (meta ->> 'lease_seconds')::double precision,
                CASE WHEN meta ->> 'worker' IS NOT NULL
                     THEN p_now + make_interval(secs => (meta ->> 'lease_seconds')::double precision) END,
                CASE WHEN meta ->> 'worker' IS NOT NULL THEN p_now END,
                p_now, e_stage[number], e_loop[number], (meta ->> 'child_execution_id')::bigint, e_event[number]);
        WHEN 'command.claimed' THEN
            UPDATE noetl.command SET status = 'CLAIMED', attempt = (meta ->> 'attempt')::integer,
                worker = meta ->> 'worker', lease_token = (meta ->> 'lease_token')::uuid, last_heartbeat = p_now,
                lease_until = p_now + make_interval(secs => lease_seconds)
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e_execution[number]
              AND command_id = e_command[number];
        WHEN 'command.abandoned', 'command.attempt_failed' THEN
            UPDATE noetl.command SET status = 'PENDING', worker = NULL, lease_token = NULL, lease_until = NULL,
                last_heartbeat = NULL,
                available_at = p_now + make_interval(secs => coalesce((meta ->> 'delay_seconds')::double precision, 0))
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e_execution[number]
              AND command_id = e_command[number];
        WHEN 'command.completed', 'command.failed' THEN
            DELETE FROM noetl.command
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e_execution[number]
              AND command_id = e_command[number];
        WHEN 'frame.dispatched', 'loop.shard.enqueued' THEN
            IF (meta ->> 'attempt')::integer > 1 THEN
                UPDATE noetl.frame SET status = 'LEASED', attempt = (meta ->> 'attempt')::integer,
                    worker = meta ->> 'worker', command_id = e_command[number],
                    lease_token = (meta ->> 'lease_token')::uuid, last_heartbeat = p_now,
                    lease_until = p_now + make_interval(secs => lease_seconds)
                WHERE tenant_id = p_tenant AND organization_id = p_organization
                  AND execution_id = e_execution[number] AND frame_id = e_frame[number];
                CONTINUE;
            END IF;
            UPDATE noetl.stage SET frames_minted = frames_minted + 1, frames_open = frames_open + 1,
                next_index = greatest(next_index, coalesce(e_index[number], 0) + (meta ->> 'row_count')::integer)
            WHERE tenant_id = p_tenant AND organization_id = p_organization
              AND execution_id = e_execution[number] AND stage_id = e_stage[number];
            -- A stage that was closed meanwhile hands out no lease: without a row every fence of this frame is broken.
            CONTINUE WHEN NOT FOUND;
            INSERT INTO noetl.frame (tenant_id, organization_id, execution_id, frame_id, stage_id, loop_id,
                shard_id, status, frame_index, first_index, row_count, attempt, worker, command_id, lease_token,
                lease_seconds, lease_until, last_heartbeat, input_ref)
            VALUES (p_tenant, p_organization, e_execution[number], e_frame[number], e_stage[number], e_loop[number],
                e_shard_id[number], 'LEASED', (meta ->> 'frame_index')::bigint,
                coalesce(e_index[number], 0), (meta ->> 'row_count')::integer, (meta ->> 'attempt')::integer,
                meta ->> 'worker', e_command[number], (meta ->> 'lease_token')::uuid,
                (meta ->> 'lease_seconds')::double precision,
                p_now + make_interval(secs => (meta ->> 'lease_seconds')::double precision), p_now,
                e_payload_ref[number]::jsonb);
        WHEN 'frame.abandoned', 'frame.attempt_failed', 'loop.shard.abandoned', 'loop.shard.attempt_failed' THEN
            UPDATE noetl.frame SET status = 'FREE', worker = NULL, command_id = NULL, lease_token = NULL,
                lease_until = NULL, last_heartbeat = NULL
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e_execution[number]
              AND frame_id = e_frame[number];
        WHEN 'frame.checkpointed' THEN
            UPDATE noetl.frame SET checkpoint = (e_context[number] -> 'cursor')::jsonb
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e_execution[number]
              AND frame_id = e_frame[number];
        WHEN 'frame.committed', 'frame.failed', 'loop.shard.done', 'loop.shard.failed' THEN
            DELETE FROM noetl.frame
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e_execution[number]
              AND frame_id = e_frame[number];
            context := coalesce(e_context[number], '{}');
            UPDATE noetl.stage SET frames_open = frames_open - 1,
                frames_failed = frames_failed + (said IN ('frame.failed', 'loop.shard.failed'))::integer,
                rows_done = rows_done + CASE WHEN said IN ('frame.failed', 'loop.shard.failed') THEN 0
                    ELSE (meta ->> 'row_count')::bigint - coalesce((meta ->> 'failed_count')::bigint, 0) END,
                rows_failed = rows_failed + CASE WHEN said IN ('frame.failed', 'loop.shard.failed')
                    THEN (meta ->> 'row_count')::bigint ELSE coalesce((meta ->> 'failed_count')::bigint, 0) END,
                errors = errors + coalesce((meta ->> 'swallowed')::bigint, 0),
                ctx = ctx || coalesce((context ->> 'set')::jsonb, '{}')
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND execution_id = e_execution[number]
              AND stage_id = e_stage[number];
        WHEN 'stage.opened' THEN
            context := coalesce(e_context[number], '{}');
            INSERT INTO noetl.stage (tenant_id, organization_id, execution_id, stage_id, loop_id, step_name, kind,
                total_rows, frame_policy)
            VALUES (p_tenant, p_organization, e_execution[number], e_stage[number], e_loop[number], e_node[number],
                meta ->> 'kind', (meta ->> 'total_rows')::bigint, coalesce(context ->> 'frame_policy', '{}')::jsonb);
        WHEN 'stage.closed' THEN
            DELETE FROM noetl.frame WHERE tenant_id = p_tenant AND organization_id = p_organization
                AND execution_id = e_execution[number] AND stage_id = e_stage[number];
            DELETE FROM noetl.stage WHERE tenant_id = p_tenant AND organization_id = p_organization
                AND execution_id = e_execution[number] AND stage_id = e_stage[number];
        WHEN 'execution.requested' THEN
            -- Only playbooks are driven step by step; the run of a DAG is what its tasks are.
            CONTINUE WHEN meta ->> 'playbook_digest' IS NULL;
            INSERT INTO noetl.execution_head (tenant_id, organization_id, execution_id, parent_execution_id,
                parent_command_id, catalog_id, path, requested_at)
            VALUES (p_tenant, p_organization, e_execution[number], e_parent[number], meta ->> 'parent_command_id',
                e_catalog[number], meta ->> 'path', e_time[number]);
        WHEN 'dag.activated', 'dag.build_failed', 'dag.ready', 'dag.rolled_back', 'dag.version_created',
             'dataset.generation_created', 'dataset.registered', 'dataset.schema_set', 'job.registered',
             'job.state_saved', 'org.created', 'org.settings_changed', 'partition.committed', 'partition.dropped',
             'role.created', 'role.granted', 'role.revoked', 'task.abandoned', 'task.attempt_failed',
             'task.cancel_requested', 'task.cancelled', 'task.claimed', 'task.completed', 'task.created',
             'task.failed', 'task.retried', 'task.skipped', 'task.started', 'user.added', 'user.removed',
             'user.role_changed' THEN
            runs := runs || e_execution[number];
            facts := facts || e_event[number];
        ELSE -- the execution has ended, and with it everything that was open
            DELETE FROM noetl.command WHERE tenant_id = p_tenant AND organization_id = p_organization
                AND execution_id = e_execution[number];
            DELETE FROM noetl.frame WHERE tenant_id = p_tenant AND organization_id = p_organization
                AND execution_id = e_execution[number];
            DELETE FROM noetl.stage WHERE tenant_id = p_tenant AND organization_id = p_organization
                AND execution_id = e_execution[number];
            DELETE FROM noetl.execution_head WHERE tenant_id = p_tenant AND organization_id = p_organization
                AND execution_id = e_execution[number];
        END CASE;
    END LOOP;
    IF cardinality(facts) > 0 THEN
        PERFORM noetl.apply_pipelines_v1(p_tenant, p_organization, runs, facts);
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION noetl.overtaken_v1(
    p_ending text[], f_group integer[], f_table text[], f_execution bigint[], f_id text[], a_group integer[],
    e_append integer[], e_execution bigint[], e_stage bigint[], e_frame bigint[], e_type text[], e_command text[]
) RETURNS TABLE (loser integer, winner integer)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY WITH said AS (
        SELECT a_group[e.append] AS grp, e.execution, e.stage, e.frame, e.type, e.command
        FROM unnest(e_append, e_execution, e_stage, e_frame, e_type, e_command)
             AS e (append, execution, stage, frame, type, command)
    ), changes AS (
        SELECT grp, execution, 'command' AS name, command AS id FROM said
        WHERE type IN ('command.claimed', 'command.abandoned', 'command.attempt_failed', 'command.completed',
                       'command.failed')
        UNION ALL
        SELECT grp, execution, 'frame', frame::text FROM said
        WHERE type IN ('frame.dispatched', 'frame.abandoned', 'frame.attempt_failed', 'frame.committed', 'frame.failed',
                       'loop.shard.enqueued', 'loop.shard.abandoned', 'loop.shard.attempt_failed', 'loop.shard.done',
                       'loop.shard.failed')
        UNION ALL
        SELECT grp, execution, 'stage', stage::text FROM said WHERE type = 'stage.closed'
        UNION ALL
        SELECT grp, execution, 'execution', '' FROM said WHERE type = ANY (p_ending)
        UNION ALL
        -- Whoever changes a task fences it, so its fences tell which.
        SELECT f.grp, f.execution, f.name, f.id FROM unnest(f_group, f_execution, f_table, f_id) AS f (grp, execution, name, id)
        WHERE f.name = 'task' AND EXISTS (
            SELECT FROM said
            WHERE said.grp = f.grp AND said.type IN ('task.claimed', 'task.attempt_failed', 'task.abandoned',
                      'task.completed', 'task.skipped', 'task.failed', 'task.cancelled', 'task.retried'))
    ), relies AS (
        SELECT grp, execution, name, id FROM unnest(f_group, f_execution, f_table, f_id) AS f (grp, execution, name, id)
        UNION ALL
        SELECT grp, execution, 'stage', stage::text FROM said WHERE stage IS NOT NULL
        UNION ALL
        SELECT grp, execution, 'execution', '' FROM said
        -- Tasks and partitions outlive the run that caused them.
        WHERE split_part(type, '.', 1) NOT IN ('dag', 'dataset', 'job', 'partition', 'task')
    )
    SELECT DISTINCT relies.grp, changes.grp FROM relies JOIN changes USING (execution, name, id)
    WHERE changes.grp < relies.grp;
END
$$;
