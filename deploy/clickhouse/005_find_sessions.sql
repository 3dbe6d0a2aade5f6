-- Finds the requests of a session, and of a trace, without a scan of all days. Applies to stored requests, too.
ALTER TABLE tokengauge.requests ADD INDEX IF NOT EXISTS by_session session TYPE bloom_filter(0.01) GRANULARITY 1;

ALTER TABLE tokengauge.requests ADD INDEX IF NOT EXISTS by_trace trace_id TYPE bloom_filter(0.01) GRANULARITY 1;

ALTER TABLE tokengauge.requests MATERIALIZE INDEX by_session;

ALTER TABLE tokengauge.requests MATERIALIZE INDEX by_trace;
