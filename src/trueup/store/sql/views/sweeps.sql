-- The latest sweeps of a reconciler, with the worker that ran each, as long as it is known. Index: sweeps_of_reconciler.
select s.started_at, s.ended_at, s.holder, w.host, w.pid, s.claimed, s.changed, s.unchanged, s.conflict, s.undone, s.retry, s.quarantined, s.lost,
       s.late, s.worst_lateness_s
  from {schema}.sweeps as s left join {schema}.workers as w on w.holder = s.holder
 where s.reconciler = %(name)s
 order by s.started_at desc, s.id desc limit %(limit)s;
