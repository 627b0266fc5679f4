-- For this session, if the server process is the one that the client knows: it may be idle without a limit, and if it is for
-- statements of `ours` alone, each is read committed. As serializable ones, where that is the default, they would make transactions
-- of users fail which run beside them.
-- Behind a pooler it is another one, and the session belongs to others in a moment. A null says so.
select case when pg_backend_pid() = %(pid)s then set_config('idle_session_timeout', '0', false) end,
       case when pg_backend_pid() = %(pid)s and %(ours)s::boolean then set_config('default_transaction_isolation', 'read committed', false) end;
