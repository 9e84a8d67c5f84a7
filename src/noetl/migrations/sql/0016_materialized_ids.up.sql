-- How far a shard is written is told by the message itself and not by its sequence alone, which a stream that lost its
-- last messages gives out again. The function is changed by its text, which is the same in every database of revision 0015.
ALTER TABLE noetl.materialized ADD COLUMN message_id text;
COMMENT ON COLUMN noetl.materialized.message_id IS 'The message that stood at the sequence when it was written.';

DO $$
DECLARE
    body text;
    twin text;
BEGIN
    body := pg_get_functiondef('noetl.materialize_v1'::regproc);
    twin := replace(body, 'materialize_v1', 'materialize_v2');
    twin := replace(twin, 'p_sequence bigint, p_token', 'p_sequence bigint, p_message_id text, p_token');
    twin := replace(twin, 'noetl.materialized AS m (stream_name, shard, sequence, stream_created',
                          'noetl.materialized AS m (stream_name, shard, sequence, message_id, stream_created');
    twin := replace(twin, 'VALUES (p_stream, p_shard, p_sequence, p_created', 'VALUES (p_stream, p_shard, p_sequence, p_message_id, p_created');
    twin := replace(twin, $old$stream_created = excluded.stream_created, sequence = CASE WHEN m.stream_created = excluded.stream_created
            THEN greatest(m.sequence, excluded.sequence) ELSE excluded.sequence END;$old$, $new$stream_created = excluded.stream_created,
        sequence = CASE WHEN m.stream_created = excluded.stream_created AND m.sequence > excluded.sequence
            THEN m.sequence ELSE excluded.sequence END,
        message_id = CASE WHEN m.stream_created = excluded.stream_created AND m.sequence > excluded.sequence
            THEN m.message_id ELSE excluded.message_id END;$new$);
    IF twin !~ 'p_message_id text' OR twin !~ 'p_sequence, p_message_id' OR twin !~ 'THEN m.message_id' THEN
        RAISE 'the text of materialize_v1 is not the one of revision 0013';
    END IF;
    EXECUTE twin;
END
$$;
COMMENT ON FUNCTION noetl.materialize_v2 IS 'Writes a batch of a shard''s stream into the ledger; a row that stands is left.';
REVOKE ALL ON FUNCTION noetl.materialize_v2 FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.materialize_v2 TO noetl_materializer;
DROP FUNCTION noetl.materialize_v1;

-- Who compares in the shadow holds shards of its own, so that the same process can write what is left in the stream.
ALTER TABLE noetl.shard_holder DROP CONSTRAINT shard_holder_role_check, ADD CONSTRAINT shard_holder_role_check
    CHECK (role IN ('relay', 'projector', 'materializer', 'shadow'));
ALTER TABLE noetl.shard_lease DROP CONSTRAINT shard_lease_role_check, ADD CONSTRAINT shard_lease_role_check
    CHECK (role IN ('relay', 'projector', 'materializer', 'shadow'));
CREATE POLICY shadow ON noetl.shard_holder TO noetl_materializer USING (role = 'shadow') WITH CHECK (role = 'shadow');
CREATE POLICY shadow ON noetl.shard_lease TO noetl_materializer USING (role = 'shadow') WITH CHECK (role = 'shadow');
-- Not even the owner may write these rows otherwise.
ALTER TABLE noetl.shard_lease NO FORCE ROW LEVEL SECURITY;
INSERT INTO noetl.shard_lease (role, shard) SELECT 'shadow', s FROM generate_series(0, 15) AS s;
ALTER TABLE noetl.shard_lease FORCE ROW LEVEL SECURITY;
