-- Takes the next free slot of a rate limit, unless it is too far ahead; returns the seconds until it. No row back: too far ahead.
-- Concurrent callers wait for the row, so no two get the same slot. A slot further ahead than any caller may
-- take is from before the clock went back, and counts as now. Index: rates_pkey.
insert into {schema}.rates as r (name, next_at)
values (%(name)s, {now} + make_interval(secs => %(spacing)s::float8))
on conflict (name) do update
   set next_at = greatest(case when r.next_at <= {now} + make_interval(secs => %(spacing)s::float8 + %(max_wait)s::float8) then r.next_at end, {now})
               + make_interval(secs => %(spacing)s::float8)
 where r.next_at <= {now} + make_interval(secs => %(wait)s::float8)
    or r.next_at > {now} + make_interval(secs => %(spacing)s::float8 + %(max_wait)s::float8)
returning greatest(extract(epoch from r.next_at - make_interval(secs => %(spacing)s::float8) - coalesce(%(now)s::timestamptz, clock_timestamp()))::float8, 0::float8);
