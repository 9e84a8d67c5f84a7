DROP FUNCTION noetl.append_v1;
DROP FUNCTION noetl.payload_lock_v1(text, text);
DROP TABLE noetl.payload_tombstone;
