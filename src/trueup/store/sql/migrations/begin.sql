-- With a fixed snapshot, one who waited for the lock would not see what its predecessor applied meanwhile, and an index made
-- concurrently would wait for us.
set transaction isolation level read committed;
