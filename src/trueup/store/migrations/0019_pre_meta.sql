-- What middleware and callers send along with a job, such as a trace context. Only adds; a worker of an older release leaves it out of the
-- history and of jobs that it revives.
alter table {schema}.jobs add column meta jsonb;
alter table {schema}.history add column meta jsonb;

-- Roles that may only enqueue, or replace queued jobs, have rights on single columns; both now write `meta`, too.
do $$
declare given record;
begin
  for given in
    select distinct acl.privilege_type as what, case when acl.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(acl.grantee)) end as who
      from pg_attribute as a, aclexplode(a.attacl) as acl
     where a.attrelid = to_regclass('{schema}.jobs') and a.attname = 'args' and acl.privilege_type in ('INSERT', 'UPDATE')
  loop
    execute format('grant %s (meta) on {schema}.jobs to %s', given.what, given.who);
  end loop;
end $$;
