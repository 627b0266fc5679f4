-- A day of history past its retention. Locks its parent for a moment; `detach concurrently` is not possible beside a catch-all partition.
drop table if exists {schema}.{day};
