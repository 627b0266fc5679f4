-- Records the result of a sweep.
insert into {schema}.sweeps (reconciler, holder, started_at, ended_at, claimed, changed, unchanged, conflict, undone, retry, quarantined, lost,
                             late, worst_lateness_s, total_lateness_s, lateness)
values (%(reconciler)s, %(holder)s, %(started_at)s, {now}, %(claimed)s, %(changed)s, %(unchanged)s, %(conflict)s, %(undone)s, %(retry)s, %(quarantined)s, %(lost)s,
        %(late)s, %(worst_lateness_s)s, %(total_lateness_s)s, %(lateness)s::bigint[]);
