-- Reconcilers, one or all: how many of their rows are held, rest or are quarantined, and what their sweeps did lately. Reads all
-- records of their rows. `declared_by_worker` is null when that is unknown: no worker is alive, or one of an older release, which does
-- not record what it declares. Index: reconcilers_pkey and rows_pkey for one; sweeps_started_at.
with {living}
select coalesce(c.name, r.reconciler) as name, c.place, c.declared, c.declared_at,
       case when c.state = 'active' and c.paused_until > {now} then 'resting' else c.state end as state, c.note, c.paused_until, c.pauses,
       array(select p.key from {schema}.reconciler_pauses as p where p.reconciler = c.name and p.paused_until > {now} order by p.key limit 20) as paused_keys,
       c.last_swept_at, c.last_error, c.last_failed_at, coalesce(c.failures, 0) as failures, r.next_due_at, coalesce(r.held, 0) as held, coalesce(r.resting, 0) as resting,
       coalesce(r.quarantined, 0) as quarantined, coalesce(r.discarded, 0) as discarded,
       case when exists (select from living) and not exists (select from {schema}.workers as w
                                                              where w.declaration is null and w.rescued_at is null and w.lease_until > {now})
            then exists (select from living as l where coalesce(c.name, r.reconciler) = any(l.reconcilers)) end as declared_by_worker,
       json_build_object('claimed', coalesce(s.claimed, 0), 'changed', coalesce(s.changed, 0), 'unchanged', coalesce(s.unchanged, 0), 'conflict', coalesce(s.conflict, 0),
                          'undone', coalesce(s.undone, 0), 'retry', coalesce(s.retry, 0), 'quarantined', coalesce(s.quarantined, 0), 'lost', coalesce(s.lost, 0)) as outcomes
  from (select * from {schema}.reconcilers where %(name)s::text is null or name = %(name)s) as c
  full join (select reconciler, min(due_at) filter (where state in ('held', 'resting')) as next_due_at,
                    count(*) filter (where state = 'held') as held, count(*) filter (where state = 'resting') as resting,
                    count(*) filter (where state = 'quarantined') as quarantined, count(*) filter (where state = 'discarded') as discarded
               from {schema}.rows where %(name)s::text is null or reconciler = %(name)s
              group by reconciler) as r on r.reconciler = c.name
  left join (select reconciler, sum(claimed)::bigint as claimed, sum(changed)::bigint as changed, sum(unchanged)::bigint as unchanged,
                    sum(conflict)::bigint as conflict, sum(undone)::bigint as undone, sum(retry)::bigint as retry, sum(quarantined)::bigint as quarantined, sum(lost)::bigint as lost
               from {schema}.sweeps
              where started_at > {now} - make_interval(secs => %(within)s::float8) and (%(name)s::text is null or reconciler = %(name)s)
              group by reconciler) as s on s.reconciler = coalesce(c.name, r.reconciler)
 order by 1;
