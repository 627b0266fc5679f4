-- The policies about existing rows (not those about new ones only) which apply to this role; and whether they are meant for it: they
-- have no condition, or name the role or one that it belongs to; others are for all roles.
select quote_ident(p.polname), p.polcmd::text, p.polpermissive,
       pg_get_expr(p.polqual, p.polrelid) = 'true' or exists (select from unnest(p.polroles) as r(role) where r.role <> 0::oid) as meant
  from pg_policy as p
 where p.polrelid = %(table)s::oid and p.polqual is not null
   and exists (select from unnest(p.polroles) as r(role) where case when r.role = 0::oid then true else pg_has_role(r.role, 'usage') end)
 order by p.polname;
