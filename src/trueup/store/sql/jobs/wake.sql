-- Notifies the listeners of a lane, with the seconds until a job is due.
select pg_notify(%(channel)s, %(lane)s || ' ' || greatest(extract(epoch from %(run_at)s::timestamptz - coalesce(%(now)s::timestamptz, now())), 0)::text);
