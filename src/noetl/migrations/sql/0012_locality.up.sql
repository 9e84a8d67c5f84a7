-- A command says where the payloads lie that it reads, so that a claim sees without another look-up how near they are.
ALTER TABLE noetl.command ADD COLUMN near jsonb;
COMMENT ON COLUMN noetl.command.near IS
    'Node, zone and region that hold most of what the command reads, as its event says; null where that does not matter.';

-- The two functions that make the row take one more field from the event. They are changed by their text, which is the
-- same in every database of this revision: two copies of their hundreds of lines would hide the one change.
DO $$
DECLARE
    change record;
    body   text;
BEGIN
    FOR change IN
        SELECT * FROM (VALUES
            ('noetl.apply_open_work_v1', 'child_execution_id, issued_event_id)',
             'child_execution_id, issued_event_id, near)'),
            ('noetl.apply_open_work_v1', '(meta ->> ''child_execution_id'')::bigint, e_event[number]);',
             '(meta ->> ''child_execution_id'')::bigint, e_event[number], (meta ->> ''near'')::jsonb);'),
            ('noetl.append_v3', 'child_execution_id, issued_event_id)', 'child_execution_id, issued_event_id, near)'),
            ('noetl.append_v3', 'said.child_execution_id, e.event_id', 'said.child_execution_id, e.event_id, said.near'),
            ('noetl.append_v3', 'child_execution_id bigint)', 'child_execution_id bigint, near jsonb)')
        ) AS c (name, old, new)
    LOOP
        body := pg_get_functiondef(change.name::regproc);
        IF length(body) - length(replace(body, change.old, '')) <> length(change.old) THEN
            RAISE 'the text of % is not the one of revision 0011', change.name;
        END IF;
        EXECUTE replace(body, change.old, change.new);
    END LOOP;
END
$$;
