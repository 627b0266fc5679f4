-- With a fixed snapshot, a process that waited for the lock would not see what its predecessor applied meanwhile, and an index made
-- concurrently would wait for us.
set transaction isolation level read committed;
-- Migrations are often run by a superuser: no name in them may resolve to an object that another user created in a schema on the search path.
set local search_path = pg_catalog, pg_temp;
