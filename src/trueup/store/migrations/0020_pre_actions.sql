-- What people did: one row per action of the command line, of Python code, of the dashboard and its API, and of Django's admin, written in the
-- transaction of the action. An action on everything that matches goes a page at a time and adds to its row. Arguments of jobs are never
-- here. Only adds; what people do with an older release is not recorded.
create table {schema}.actions (
  id       bigint generated always as identity primary key,
  at       timestamptz not null,
  actor    text not null,                        -- the user of the operating system, the name of a token or login, or what was given as by=
  via      text not null,                        -- cli, python or web
  host     text not null,
  action   text not null,                        -- cancel, pause, trigger and so on
  what     text not null,                        -- job, queue, kind, schedule, reconciler or row
  name     text,                                 -- of the queue, kind, schedule or reconciler
  count    bigint not null,
  keys     text[] not null default '{{}}',       -- ids of jobs or keys of rows, the first hundred
  detail   text
);
create index actions_at on {schema}.actions (at);
create index actions_keys on {schema}.actions using gin (keys);

-- Roles that were given rights on all tables have them on this one, too.
do $$
declare given record;
begin
  for given in
    select acl.privilege_type as what, case when acl.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(acl.grantee)) end as who
      from pg_class as c, aclexplode(c.relacl) as acl
     where c.oid = to_regclass('{schema}.pauses') and acl.grantee <> c.relowner
  loop
    execute format('grant %s on {schema}.actions to %s', given.what, given.who);
  end loop;
end $$;
