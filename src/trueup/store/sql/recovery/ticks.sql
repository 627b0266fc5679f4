-- The verdicts on the ticks that were due after one time up to another, by schedule and reason; triggered ones are left out.
-- A tick is late when it was decided more than its schedule's grace after it was due.
-- Days outside that time are not looked at.
select t.schedule, t.outcome, t.reason, count(*) as decisions, sum(t.count)::bigint as ticks,
       count(*) filter (where l.seconds > l.grace) as late, max(l.seconds) as worst_s, sum(l.seconds) as total_s
  from {schema}.ticks as t
  left join unnest(%(names)s::text[], %(graces)s::float8[]) as s(name, grace) on s.name = t.schedule
 cross join lateral (select greatest(extract(epoch from t.decided_at - t.due_at), 0)::float8 as seconds,
                            coalesce(s.grace, %(grace)s::float8) as grace) as l
 where t.due_at > %(since)s and t.due_at <= %(until)s and (t.reason is null or t.reason not in ('triggered', 'backfill'))
 group by t.schedule, t.outcome, t.reason
 order by t.schedule, t.outcome, t.reason;
