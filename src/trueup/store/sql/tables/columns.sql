-- The columns of a table in their order, each with the type that is under its domain: a cast to a domain over varchar(3) would cut
-- silently, what is assigned to the column is refused when it is too long. format_type gets -1 and not null for the same reason:
-- with null it prints bpchar as "character", which means character(1). NOT NULL that is not valid yet promises nothing.
with recursive bare as (
  select a.attnum, a.atttypid as type, a.atttypmod as modifier,
         a.attnotnull and not exists (select from pg_constraint as c where c.conrelid = a.attrelid and c.contype = 'n' and c.conkey operator(pg_catalog.=) array[a.attnum] and not c.convalidated) as not_null
    from pg_attribute as a
   where a.attrelid = %(table)s::oid and a.attnum > 0 and not a.attisdropped
  union all
  select b.attnum, t.typbasetype, t.typtypmod, b.not_null or t.typnotnull
    from bare as b
    join pg_type as t on t.oid = b.type
   where t.typtype = 'd'
)
select a.attname::text, format_type(t.oid, -1) as type,
       case when t.typtype = 'e' then 'enum'
            when t.oid in ('int2'::regtype::oid, 'int4'::regtype::oid, 'int8'::regtype::oid) then 'int'
            when t.oid = 'timestamptz'::regtype::oid then 'timestamptz'
            when t.oid = 'timestamp'::regtype::oid then 'timestamp'
            when t.oid = 'uuid'::regtype::oid then 'uuid'
            when t.oid in ('json'::regtype::oid, 'jsonb'::regtype::oid) then 'json'
            when t.typcategory = 'S' and t.oid <> '"char"'::regtype::oid then 'text'
            else 'other' end as category,
       b.not_null, a.attgenerated <> '' or a.attidentity = 'a' as generated,
       array(select e.enumlabel::text from pg_enum as e where e.enumtypid = t.oid order by e.enumsortorder) as labels,
       case when t.oid in ('varchar'::regtype::oid, 'bpchar'::regtype::oid) and b.modifier >= 4 then b.modifier - 4 end as length,
       quote_ident(a.attname) as quoted, has_column_privilege(a.attrelid, a.attnum, 'select') as readable, has_column_privilege(a.attrelid, a.attnum, 'update') as writable,
       case when t.typnamespace = 'pg_catalog'::regnamespace::oid or t.typtype in ('e', 'c', 'r', 'm') or t.typcategory = 'A' then 'pg_catalog'
            else (select quote_ident(n.nspname)
                    from pg_opclass as c
                    join pg_am as m on m.oid = c.opcmethod and m.amname = 'btree'
                    join pg_amop as w on w.amopfamily = c.opcfamily and w.amoplefttype = t.oid and w.amoprighttype = t.oid and w.amopstrategy = 3
                    join pg_operator as o on o.oid = w.amopopr
                    join pg_namespace as n on n.oid = o.oprnamespace
                   where c.opcintype = t.oid and c.opcdefault) end as operators
  from bare as b
  join pg_attribute as a on a.attrelid = %(table)s::oid and a.attnum = b.attnum
  join pg_type as t on t.oid = b.type and t.typtype <> 'd'
 order by a.attnum;
