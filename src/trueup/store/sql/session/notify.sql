-- Sends a notification on the channel; used to find out whether this process receives its own.
select pg_notify(%(channel)s, %(payload)s);
