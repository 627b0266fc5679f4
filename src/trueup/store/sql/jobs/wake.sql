-- Wakes the listeners of a lane, and says in how many seconds there is work.
select pg_notify(%(channel)s, %(lane)s || ' ' || greatest(extract(epoch from %(run_at)s::timestamptz - coalesce(%(now)s::timestamptz, now())), 0)::text);
