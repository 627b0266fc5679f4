-- What the sweeps that ended after a moment did, by reconciler. `busy_s` and `busy_rows` are of those that ended within
-- `lately` of the last one: for how long any worker swept, and how many rows they settled in that time.
-- Index: sweeps_started_at; a sweep is taken to last less than a day.
with s as materialized (
  select * from {schema}.sweeps
   where started_at > %(since)s::timestamptz - interval '1 day' and ended_at > %(since)s and ended_at <= %(until)s
), latest as (
  select reconciler, max(ended_at) - make_interval(secs => %(lately)s::float8) as after from s group by reconciler
), busy as (
  select reconciler, sum(claimed - lost)::bigint as settled, range_agg(tstzrange(least(started_at, ended_at), ended_at)) as spans
    from s join latest using (reconciler)
   where ended_at > latest.after
   group by reconciler
), histogram as (
  select reconciler, array_agg(counted order by place) as lateness
    from (select s.reconciler, l.place, sum(l.counted)::bigint as counted
            from s, unnest(s.lateness) with ordinality as l(counted, place)
           group by s.reconciler, l.place) as places
   group by reconciler
)
select s.reconciler, sum(claimed)::bigint, sum(changed)::bigint, sum(unchanged)::bigint, sum(conflict)::bigint, sum(undone)::bigint, sum(retry)::bigint,
       sum(quarantined)::bigint, sum(lost)::bigint, sum(late)::bigint, max(worst_lateness_s), sum(total_lateness_s), h.lateness,
       b.settled as busy_rows,
       (select sum(extract(epoch from upper(span) - lower(span)))::float8 from unnest(b.spans) as u(span)) as busy_s
  from s join busy as b using (reconciler) left join histogram as h using (reconciler)
 group by s.reconciler, h.lateness, b.settled, b.spans;
