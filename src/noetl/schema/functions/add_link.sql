-- Called while the head of the shard is held, so the last link is the one that the new one follows.
CREATE OR REPLACE FUNCTION noetl.add_link(
    p_shard smallint, p_first_position bigint, p_events integer, p_times bytea, p_versions bytea, p_leaves bytea
) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    IF octet_length(p_leaves) IS DISTINCT FROM 32 * p_events THEN
        RAISE data_exception USING MESSAGE = format('%s events came with %s bytes of leaves', p_events, octet_length(p_leaves));
    END IF;
    INSERT INTO noetl.ledger_link (shard, first_position, events, ingest_times, versions, leaves, link)
    VALUES (p_shard, p_first_position, p_events, p_times, p_versions, p_leaves, sha256(
        coalesce((SELECT known.link FROM noetl.ledger_link AS known
                  WHERE known.shard = p_shard AND known.first_position < p_first_position
                  ORDER BY known.first_position DESC LIMIT 1), decode(repeat('00', 32), 'hex'))
        || int8send(p_first_position) || int4send(p_events) || p_times || p_versions || p_leaves));
END
$$;
COMMENT ON FUNCTION noetl.add_link IS 'Binds events that a call wrote to a shard to everything that stands there before.';
REVOKE ALL ON FUNCTION noetl.add_link FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.add_link TO noetl_materializer;
