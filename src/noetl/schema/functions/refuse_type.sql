CREATE OR REPLACE FUNCTION noetl.refuse_type(said text) RETURNS text
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE check_violation USING MESSAGE = format('the event type %L is not declared', said),
        CONSTRAINT = 'event_type_declared';
END
$$;
COMMENT ON FUNCTION noetl.refuse_type IS 'Raises the error for an event type that nobody declared.';
