-- For this session, if the server process is the one that the client knows: it may be idle without a limit.
-- Behind a pooler it is another one, and the session belongs to others in a moment. A null says so.
select case when pg_backend_pid() = %(pid)s then set_config('idle_session_timeout', '0', false) end;
