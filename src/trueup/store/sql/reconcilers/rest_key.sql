-- The breaker of one key opens: rows of that key wait. One that is open stays as it is, unless `extend` asks for more than a second longer. No row back
-- either when too many keys have one. Keys whose breaker opened a day ago and that were never seen again are deleted. Index: reconciler_pauses_pkey.
with old as (
  delete from {schema}.reconciler_pauses
   where reconciler = %(name)s and key <> %(key)s and paused_until < {now} - make_interval(days => 1)
)
insert into {schema}.reconciler_pauses as p (reconciler, key, paused_until, note)
select %(name)s, %(key)s, {now} + make_interval(secs => %(seconds)s::float8), %(note)s
 where (select count(*) from {schema}.reconciler_pauses as o where o.reconciler = %(name)s and o.key <> %(key)s) < %(max_keys)s
on conflict (reconciler, key) do update
   set paused_until = excluded.paused_until, pauses = p.pauses + 1, note = excluded.note
 where p.paused_until <= {now} or (%(extend)s and p.paused_until < excluded.paused_until - make_interval(secs => 1))
returning pauses;
