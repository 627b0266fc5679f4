-- Wakes the listeners of a lane, and says from when on there is work.
select pg_notify(%(channel)s, %(lane)s || ' ' || extract(epoch from %(run_at)s::timestamptz)::text);
