-- Jobs with `exhausted=`: what is left to do for a job whose handler is not called again, and which kinds have such a function, so that
-- a worker which does not know a kind can leave its jobs to those that do. Only adds; an older worker ignores both.
alter table {schema}.jobs add column exhausting jsonb;
alter table {schema}.declarations add column exhausted text[] not null default array[]::text[];

-- Roles that may replace queued jobs have rights on the columns that this changes; now it clears `exhausting`, too.
do $$
declare who text;
begin
  for who in
    select distinct case when acl.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(acl.grantee)) end
      from pg_attribute as a, aclexplode(a.attacl) as acl
     where a.attrelid = to_regclass('{schema}.jobs') and a.attname = 'cancel_requested_at' and acl.privilege_type = 'UPDATE'
  loop
    execute 'grant update (exhausting) on {schema}.jobs to ' || who;
  end loop;
end $$;
