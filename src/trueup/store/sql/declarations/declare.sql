-- Records what a process declares, when it registers or finds its record gone. `started_at` is null when the process has just
-- started: where two releases differ, the one that started last counts. Returns when the process started. Index: declarations_pkey.
insert into {schema}.declarations as d (digest, service, release, queues, kinds, lanes, schedules, reconcilers, exhausted, living_since, started_at, seen_at)
values (%(digest)s, %(service)s, %(release)s, %(queues)s::text[], %(kinds)s::text[], %(lanes)s::text[], %(schedules)s::text[], %(reconcilers)s::text[], %(exhausted)s::text[],
        {now}, coalesce(%(started_at)s::timestamptz, {now}), {now})
on conflict (digest) do update
   set release = excluded.release, queues = excluded.queues, kinds = excluded.kinds, lanes = excluded.lanes,
       schedules = excluded.schedules, reconcilers = excluded.reconcilers, exhausted = excluded.exhausted,
       living_since = case when d.seen_at < {now} - make_interval(secs => %(retire_after)s::float8) then {now} else d.living_since end,
       started_at = greatest(d.started_at, excluded.started_at),
       seen_at = greatest(d.seen_at, excluded.seen_at)
returning coalesce(%(started_at)s::timestamptz, {now});
