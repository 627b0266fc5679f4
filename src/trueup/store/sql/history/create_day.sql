-- A day of history, made apart and then attached. Whoever has chosen the catch-all partition for a row of that day, and then waits
-- for it, would be refused once the day is there: so nobody may be on the way while it is attached, and those who come wait until
-- it is. Sent after lock_rest; what goes to other parents goes on.
create table {schema}.{day} (like {schema}.{parent} including defaults including constraints);
alter table {schema}.{day} replica identity full; -- as 0009_pre_replica_identity has it; it is not taken over from the parent
lock table {schema}.{parent} in share row exclusive mode;
alter table {schema}.{parent} attach partition {schema}.{day} for values from ({first}) to ({last});
