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
