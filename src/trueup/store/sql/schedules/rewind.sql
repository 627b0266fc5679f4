-- Moves a watermark that is ahead of the clock back: ticks begin now. The ledger stays, so that a tick with a verdict keeps it. Versions
-- that were made while the clock was ahead begin now, too, or two would be in effect at a time. Returns its name when it was ahead.
with rewound as (
  update {schema}.schedules
     set decided_until = %(now)s::timestamptz, next_due_at = %(next_due_at)s::timestamptz, version = version + 1, changed_at = %(now)s::timestamptz
   where name = %(name)s and state in ('active', 'paused') and decided_until > %(now)s::timestamptz
  returning name, version, changed_at as since, state, spec
), pulled as (
  update {schema}.schedule_versions as v set since = r.since from rewound as r where v.name = r.name and v.since > r.since
  returning v.version
)
insert into {schema}.schedule_versions (name, version, since, state, spec)
select name, version, since, state, spec from rewound
returning name;
