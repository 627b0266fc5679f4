-- With a fixed snapshot, one who waited for the lock would not see what its predecessor applied meanwhile, and an index made
-- concurrently would wait for us.
set transaction isolation level read committed;
-- Migrations are often run by a superuser: nothing in them may mean what somebody else has made in a schema on the search path.
set local search_path = pg_catalog, pg_temp;
