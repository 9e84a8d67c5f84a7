DO $$
DECLARE
    change record;
    body   text;
BEGIN
    FOR change IN
        SELECT * FROM (VALUES
            ('noetl.apply_open_work_v1', 'child_execution_id, issued_event_id, near)',
             'child_execution_id, issued_event_id)'),
            ('noetl.apply_open_work_v1', 'e_event[number], (meta ->> ''near'')::jsonb);', 'e_event[number]);'),
            ('noetl.append_v3', 'child_execution_id, issued_event_id, near)', 'child_execution_id, issued_event_id)'),
            ('noetl.append_v3', 'said.child_execution_id, e.event_id, said.near', 'said.child_execution_id, e.event_id'),
            ('noetl.append_v3', 'child_execution_id bigint, near jsonb)', 'child_execution_id bigint)')
        ) AS c (name, old, new)
    LOOP
        body := pg_get_functiondef(change.name::regproc);
        IF length(body) - length(replace(body, change.old, '')) <> length(change.old) THEN
            RAISE 'the text of % is not the one of revision 0012', change.name;
        END IF;
        EXECUTE replace(body, change.old, change.new);
    END LOOP;
END
$$;
ALTER TABLE noetl.command DROP COLUMN near;
