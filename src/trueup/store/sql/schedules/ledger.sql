-- The ledger of a schedule after one time up to another, oldest first. It begins with the planner's last row before that range, which
-- may stand for ticks that reach into it; a triggered or backfilled row stands for one tick. Index: ticks_pkey.
select due_at, last_due_at, count, outcome, reason, job_id
  from {schema}.ticks
 where schedule = %(name)s and due_at <= %(until)s
   and due_at >= coalesce((select max(due_at) from {schema}.ticks
                            where schedule = %(name)s and due_at <= %(since)s and (count > 1 or reason is null or reason not in ('backfill', 'triggered'))),
                          '-infinity')
 order by due_at;
