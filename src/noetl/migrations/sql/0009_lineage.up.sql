-- Which column comes from which, in each generation of a dataset, and how far the outside was told about tasks.

CREATE TABLE noetl.dataset_lineage (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    dataset_version uuid NOT NULL,
    version         bigint NOT NULL,
    dataset_uuid    uuid NOT NULL,
    number          integer NOT NULL,
    lineage_hash    text COLLATE "C" NOT NULL,
    how             text NOT NULL,
    reason          text,
    job             text COLLATE "C" NOT NULL,
    inputs          jsonb NOT NULL,
    columns_ref     jsonb,
    PRIMARY KEY (tenant_id, organization_id, dataset_version, version)
);
COMMENT ON TABLE noetl.dataset_lineage IS 'What is known of where a generation comes from, each time more was; the greatest version holds.';

CREATE TABLE noetl.column_lineage (
    tenant_id           text COLLATE "C" NOT NULL,
    organization_id     text COLLATE "C" NOT NULL,
    dataset_version     uuid NOT NULL,
    version             bigint NOT NULL,
    place               integer NOT NULL,
    output_dataset_uuid uuid NOT NULL,
    output_column       text COLLATE "C",
    input_dataset_uuid  uuid,
    input_column        text COLLATE "C",
    kind                text NOT NULL,
    how                 text NOT NULL,
    job                 text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, dataset_version, version, place)
);
COMMENT ON TABLE noetl.column_lineage IS 'Which column of a generation is made of which of its inputs; of lineage that is a payload there is none here.';
CREATE INDEX idx_column_lineage_input
    ON noetl.column_lineage (input_dataset_uuid, input_column, tenant_id, organization_id);

CREATE TABLE noetl.openlineage_cursor (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    receiver        text COLLATE "C" NOT NULL,
    shard           smallint NOT NULL,
    position        bigint NOT NULL,
    moved_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, organization_id, receiver, shard)
) WITH (fillfactor = 70);
COMMENT ON TABLE noetl.openlineage_cursor IS 'Up to which position of each shard a receiver was told about tasks; moved only after it took the news.';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['dataset_lineage', 'column_lineage', 'openlineage_cursor'] LOOP
        EXECUTE format('ALTER TABLE noetl.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE noetl.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY scoped ON noetl.%I TO noetl_runtime, current_user
            USING (tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()))', name);
        EXECUTE format('GRANT SELECT ON noetl.%I TO noetl_runtime', name);
    END LOOP;
END
$$;
GRANT INSERT, UPDATE ON noetl.openlineage_cursor TO noetl_runtime;

CREATE FUNCTION noetl.apply_lineage_v1(p_tenant text, p_organization text, p_execution bigint[], p_event bigint[])
    RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    said    noetl.event;
    meta    jsonb;
    context jsonb;
BEGIN
    FOR place IN 1..cardinality(p_event) LOOP
        SELECT e.* INTO said FROM noetl.event AS e
        WHERE e.execution_id = p_execution[place] AND e.event_id >= p_event[place] AND e.tenant_id = p_tenant
          AND e.organization_id = p_organization ORDER BY e.event_id LIMIT 1;
        meta := coalesce(said.meta::jsonb, '{}');
        context := coalesce(said.context::jsonb, '{}');
        INSERT INTO noetl.dataset_lineage (tenant_id, organization_id, dataset_version, version, dataset_uuid, number,
            lineage_hash, how, reason, job, inputs, columns_ref)
        VALUES (p_tenant, p_organization, (meta ->> 'dataset_version')::uuid, said.stream_version,
            (meta ->> 'dataset_uuid')::uuid, (meta ->> 'version')::integer, meta ->> 'lineage_hash', meta ->> 'how',
            context ->> 'reason', said.node_name, coalesce(context -> 'inputs', '[]'), said.payload_ref::jsonb);
        INSERT INTO noetl.column_lineage (tenant_id, organization_id, dataset_version, version, place,
            output_dataset_uuid, output_column, input_dataset_uuid, input_column, kind, how, job)
        SELECT p_tenant, p_organization, (meta ->> 'dataset_version')::uuid, said.stream_version, edge.place - 1,
            (meta ->> 'dataset_uuid')::uuid, edge.parts ->> 0, (edge.parts ->> 1)::uuid, edge.parts ->> 2,
            edge.parts ->> 3, meta ->> 'how', said.node_name
        FROM jsonb_array_elements(coalesce(context -> 'columns', '[]')) WITH ORDINALITY AS edge (parts, place);
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.apply_lineage_v1 IS 'Changes the rows of which column comes from which, as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_lineage_v1 FROM PUBLIC;
