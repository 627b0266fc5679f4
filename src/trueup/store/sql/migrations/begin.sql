-- With a fixed snapshot, a process that waited for the lock would not see what its predecessor applied meanwhile, and an index made
-- concurrently would wait for us.
set transaction isolation level read committed;
-- Migrations are often run by a superuser: no name in them may resolve to an object that another user created in a schema on the search path.
set local search_path = pg_catalog, pg_temp;
-- An index of a large table takes long, and this session is idle meanwhile where the index is made concurrently.
select set_config('statement_timeout', '0', true), set_config('idle_in_transaction_session_timeout', '0', true),
       case when current_setting('transaction_timeout', true) is not null then set_config('transaction_timeout', '0', true) end;
