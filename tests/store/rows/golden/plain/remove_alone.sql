-- For claim='row_lock' and a handler without tx: as remove_locked.sql, with nothing to compare. Index: the user's key.
delete from "public"."t" as t where t."id" operator(pg_catalog.=) %(k1)s::text::bigint;
