-- A day of history, created as a separate table and then attached. An insert that has chosen the catch-all partition for a row of that
-- day, and then waits for it, would be refused once the day exists. So no insert may be in flight while it is attached, and new ones
-- wait until it is. Sent after lock_rest; inserts into other parents continue.
create table {schema}.{day} (like {schema}.{parent} including defaults including constraints);
alter table {schema}.{day} replica identity full; -- as in 0009_pre_replica_identity; a partition does not inherit it
lock table {schema}.{parent} in share row exclusive mode;
alter table {schema}.{parent} attach partition {schema}.{day} for values from ({first}) to ({last});
