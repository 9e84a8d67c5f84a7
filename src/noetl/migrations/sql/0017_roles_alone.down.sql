DROP POLICY bound ON noetl.snapshot;
DROP POLICY bound ON noetl.event_archive;
DROP POLICY bound ON noetl.event;
