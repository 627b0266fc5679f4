-- Writes the state of one alert. Fence: (lease, holder, term). No row back: the lease is lost. Indexes: leases_pkey, alerts_pkey.
with mine as materialized (
  select term from {schema}.leases where name = %(lease)s and holder = %(holder)s and term = %(term)s for key share
)
insert into {schema}.alerts (name, state, since, severity, problem)
select %(name)s::text, %(state)s::text, {now}, %(severity)s::text, %(problem)s::text from mine
on conflict (name) do update set state = excluded.state, severity = excluded.severity, problem = excluded.problem
returning name;
