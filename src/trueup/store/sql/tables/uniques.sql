-- The unique indexes of a table, and what is wrong with those that do not make every row's key its own at every moment.
select c.relname::text,
       array(select a.attname::text
               from unnest(i.indkey::int2[]) with ordinality as k(attnum, place)
               join pg_attribute as a on a.attrelid = i.indrelid and a.attnum = k.attnum
              where k.place <= i.indnkeyatts
              order by k.place) as columns,
       case when i.indpred is not null then 'is partial'
            when not i.indimmediate then 'is deferrable'
            when not i.indisvalid then 'is not valid' end as flaw
  from pg_index as i
  join pg_class as c on c.oid = i.indexrelid
 where i.indrelid = %(table)s::oid and i.indisunique and i.indislive and i.indexprs is null
 order by not i.indisprimary, c.relname;
