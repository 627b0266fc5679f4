-- Begins a scan that is due (with `anyway` also one that is not), or resumes an unfinished one. The start is counted here and not at a
-- failure: a scan that kills its process has failed too. Another process may resume it immediately, but after `free` starts without
-- progress only with backoff. Fence: its lease, in this transaction. No row back: it is not due. Index: scans_pkey.
update {schema}.scans as s
   set underway = true, failures = s.failures + 1,
       cursor = case when s.underway then s.cursor end,
       started_at = case when s.underway then s.started_at else t.now end,
       items = case when s.underway then s.items else 0 end,
       failed = case when s.underway then s.failed else 0 end,
       due_at = case when s.failures < %(free)s then t.now
                     else t.now + make_interval(secs => least(%(every)s::float8, %(first)s::float8 * 2::float8 ^ least(s.failures - %(free)s, 30)::float8)) end
  from (select coalesce(%(now)s::timestamptz, now()) as now) as t
 where s.name = %(name)s and (s.due_at <= t.now or %(anyway)s)
returning s.cursor, s.items, s.failed, s.failures;
