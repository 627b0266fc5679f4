-- For claim='row_lock' and a handler without tx: as change_locked.sql, but no transaction can have changed the row since it was locked,
-- so nothing is compared. Index: the user's key.
update "public"."t" as t set "state" = %(state)s::text::text where t."id" operator(pg_catalog.=) %(k1)s::text::bigint;
