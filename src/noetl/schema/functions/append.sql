-- The only way into the ledger. One call takes many appends of one organization, decides each group of them, numbers
-- the survivors, writes them and changes the rows of open work they speak of; a caller can neither choose positions
-- nor change a row.
--
-- Outcomes: 0 written, 1 repeated, 2 wrong expected version, 3 key reused with other content, 4 recorded already,
-- 5 payload collected, 6 lease lost, 7 refused with its group.
CREATE OR REPLACE FUNCTION noetl.append(
    p_mode text, p_tenant text, p_organization text, p_key_ttl interval, p_has_once boolean, p_has_payload boolean,
    p_types text[], fences noetl.lease_fence[], appends noetl.new_append[], events noetl.new_event[]
) RETURNS TABLE (outcome integer, first_version bigint, first_position bigint, event_ids bigint[])
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off AS $$
DECLARE
    waits  boolean := p_mode = 'stream';
    own    noetl.new_append;
    fence  noetl.lease_fence;
    fresh  integer := 0;
    now_at timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(noetl.write_path_lock());
    IF (SELECT way.mode FROM noetl.write_path AS way) <> p_mode THEN
        RAISE SQLSTATE 'NE001' USING MESSAGE = format('events do not take the way of the %s now', p_mode);
    END IF;
    IF p_tenant IS NULL OR p_organization IS NULL OR p_tenant = '' OR p_organization = ''
       OR coalesce(noetl.tenant(), p_tenant) <> p_tenant
       OR coalesce(noetl.organization(), p_organization) <> p_organization THEN
        RAISE insufficient_privilege USING MESSAGE = 'append outside the tenant and organization of this transaction';
    END IF;
    PERFORM set_config('noetl.tenant', p_tenant, true), set_config('noetl.organization', p_organization, true);

    <<short>>
    BEGIN
        -- A step that ended well and what follows it, or plain facts.
        EXIT short WHEN cardinality(appends) <> 1 OR cardinality(fences) > 1 OR p_has_once OR p_has_payload
            OR NOT p_types <@ ARRAY['command.completed', 'command.issued'];
        own := appends[1];
        fence := fences[1];
        EXIT short WHEN fence.mode <> 1 OR fence.table_name <> 'command';

        IF own.keys > 0 THEN
            INSERT INTO noetl.idempotency_key (tenant_id, organization_id, key, content_digest, execution_id, event_id,
                                               ordinal, event_ids, expires_at)
            SELECT p_tenant, p_organization, e.idempotency_key, own.digest, e.execution_id, e.event_id, e.ordinal,
                   own.event_ids, now() + p_key_ttl
            FROM unnest(events) AS e WHERE e.idempotency_key IS NOT NULL ORDER BY e.idempotency_key COLLATE "C"
            ON CONFLICT DO NOTHING;
            GET DIAGNOSTICS fresh = ROW_COUNT;
            EXIT short WHEN fresh < own.keys;
        END IF;
        IF cardinality(fences) = 1 THEN
            PERFORM FROM noetl.command AS held
            WHERE held.tenant_id = p_tenant AND held.organization_id = p_organization
              AND held.execution_id = fence.execution_id AND held.command_id = fence.id
              AND noetl.fence_holds(fence, held.attempt, held.lease_token, held.lease_until) FOR UPDATE;
            EXIT short WHEN NOT FOUND;
        END IF;
        UPDATE noetl.stream AS known SET version = known.version + own.size
        WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization
          AND known.stream_id = own.stream_id AND known.version = coalesce(own.expected_version, known.version)
        RETURNING known.version - own.size INTO first_version;
        EXIT short WHEN NOT FOUND;

        -- As `noetl.take_heads` does for many: the time is taken once the head is held.
        IF waits THEN
            UPDATE noetl.shard_outbox AS head
            SET position = head.position + own.size, last_ingest = greatest(head.last_ingest, clock_timestamp())
            WHERE head.shard = own.shard
            RETURNING head.position - own.size, head.last_ingest INTO first_position, now_at;
        ELSE
            UPDATE noetl.shard AS head
            SET position = head.position + own.size, last_ingest = greatest(head.last_ingest, clock_timestamp())
            WHERE head.shard = own.shard
            RETURNING head.position - own.size, head.last_ingest INTO first_position, now_at;
        END IF;
        PERFORM noetl.insert_events(waits, p_tenant, p_organization, now_at, events, ARRAY[own.stream_id],
                                    ARRAY[own.shard], ARRAY[first_position], ARRAY[first_version]);
        IF waits THEN
            INSERT INTO noetl.pending_leaf (shard, first_position, events, leaves)
            VALUES (own.shard, first_position + 1, own.size, own.leaves);
        ELSE
            PERFORM noetl.add_link(own.shard, first_position + 1, own.size, timestamptz_send(now_at),
                                   int8send(first_version + 1) || int4send(own.size), own.leaves);
        END IF;
        IF cardinality(p_types) > 0 THEN
            PERFORM noetl.apply_open_work(p_tenant, p_organization, p_types, now_at, events);
        END IF;
        outcome := 0;
        first_version := first_version + 1;
        first_position := first_position + 1;
        RETURN NEXT;
        RETURN;
    END;

    IF fresh > 0 THEN
        -- The short way took keys and then met something unusual: the long way begins as if nothing had been.
        DELETE FROM noetl.idempotency_key AS known
        WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization
          AND known.expires_at = now() + p_key_ttl AND known.event_id = ANY (own.event_ids)
          AND known.key IN (SELECT e.idempotency_key FROM unnest(events) AS e);
    END IF;
    RETURN QUERY SELECT * FROM noetl.append_groups(
        waits, p_tenant, p_organization, p_key_ttl, p_has_once, p_has_payload, p_types, fences, appends, events);
END
$$;
COMMENT ON FUNCTION noetl.append IS
    'Decides, numbers and writes appends of one organization; the only way in.';
REVOKE ALL ON FUNCTION noetl.append FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.append TO noetl_runtime;
