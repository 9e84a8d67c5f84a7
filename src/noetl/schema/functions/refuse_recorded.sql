-- What the ledger's unique indexes refuse must not wait for it either.
CREATE OR REPLACE FUNCTION noetl.refuse_recorded() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM came AS c JOIN noetl.event AS known ON known.execution_id = c.execution_id
               AND known.event_id = c.event_id AND known.tenant_id = c.tenant_id
               AND known.organization_id = c.organization_id) THEN
        RAISE unique_violation USING MESSAGE = 'an event of this id is in the ledger', CONSTRAINT = 'event_pkey';
    END IF;
    -- begin generated: waiting facts that stand once
    IF EXISTS (SELECT FROM came AS c JOIN noetl.event AS known ON known.execution_id = c.execution_id
               AND known.command_id = c.command_id AND known.tenant_id = c.tenant_id
               AND known.organization_id = c.organization_id AND known.event_type = 'command.issued'
               WHERE c.event_type = 'command.issued') THEN
        RAISE unique_violation USING MESSAGE = 'command.issued of this command_id is in the ledger',
            CONSTRAINT = 'uidx_event_command_issued_command_id';
    END IF;
    IF EXISTS (SELECT FROM came AS c JOIN noetl.event AS known ON known.execution_id = c.execution_id
               AND known.loop_id = c.loop_id AND known.tenant_id = c.tenant_id
               AND known.organization_id = c.organization_id AND known.event_type = 'loop.done'
               WHERE c.event_type = 'loop.done') THEN
        RAISE unique_violation USING MESSAGE = 'loop.done of this loop_id is in the ledger',
            CONSTRAINT = 'uidx_event_loop_done_loop_id';
    END IF;
    IF EXISTS (SELECT FROM came AS c JOIN noetl.event AS known ON known.execution_id = c.execution_id
               AND known.loop_id = c.loop_id AND known.tenant_id = c.tenant_id
               AND known.organization_id = c.organization_id AND known.event_type = 'loop.fanin.completed'
               WHERE c.event_type = 'loop.fanin.completed') THEN
        RAISE unique_violation USING MESSAGE = 'loop.fanin.completed of this loop_id is in the ledger',
            CONSTRAINT = 'uidx_event_loop_fanin_completed_loop_id';
    END IF;
    -- end generated
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION noetl.refuse_recorded IS 'Refuses waiting events that the ledger could not take.';
REVOKE ALL ON FUNCTION noetl.refuse_recorded FROM PUBLIC;
CREATE OR REPLACE TRIGGER refuse_recorded AFTER INSERT ON noetl.pending_event REFERENCING NEW TABLE AS came
    FOR EACH STATEMENT EXECUTE FUNCTION noetl.refuse_recorded();
