-- Says something on the channel; used to find out whether we hear ourselves.
select pg_notify(%(channel)s, %(payload)s);
