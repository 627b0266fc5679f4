-- Whether a day has its table.
select exists (select from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
                where n.nspname = %(schema)s::name and c.relname = %(day)s::name);
