DROP TABLE noetl.held_event;
DROP TABLE noetl.broken_stream;
