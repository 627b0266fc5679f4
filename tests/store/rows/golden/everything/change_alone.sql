-- For claim='row_lock' and a handler without tx: as change_locked.sql, but no transaction can have changed the row since it was locked,
-- so nothing is compared. Index: the user's key.
update "public"."t" as t set "state" = %(state)s::text::stage, "changed_at" = (coalesce(%(now)s::timestamptz, pg_catalog.now()) at time zone 'utc'), "version" = coalesce(t."version", 0) + 1, "owner" = null, "until" = null where t."tenant" operator(pg_catalog.=) %(k1)s::text::uuid and t."id" operator(pg_catalog.=) %(k2)s::text::text;
