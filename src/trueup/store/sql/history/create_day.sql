-- A day of history, made apart and then attached: only the catch-all partition is locked meanwhile, and finishing goes on.
set local lock_timeout = '2s';
create table {schema}.{day} (like {schema}.{parent} including defaults including constraints);
alter table {schema}.{parent} attach partition {schema}.{day} for values from ({first}) to ({last});
