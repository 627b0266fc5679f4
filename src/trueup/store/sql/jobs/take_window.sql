-- Takes a unique key for its window, independent of the fate of its job. No row back: it is taken, see find_window.
insert into {schema}.unique_windows as w (kind, unique_key, job_id, taken_until)
values (%(kind)s, %(unique_key)s, 0, coalesce(%(now)s::timestamptz, now()) + make_interval(secs => %(window)s::float8))
on conflict (kind, unique_key) do update set job_id = excluded.job_id, taken_until = excluded.taken_until
 where w.taken_until <= coalesce(%(now)s::timestamptz, now())
returning taken_until;
