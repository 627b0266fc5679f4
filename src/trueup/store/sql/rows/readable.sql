-- Reads the keys of these records as values of the key's columns: to find those that are none, with rows/one_by_one.sql. A column was
-- retyped since, say, or a label of its enum was renamed. Looks at no table.
select m.key, concat(left(concat({values}), 0), 'true') as verdict
  from unnest(%(key)s::text[], %(whole_key)s::text[]) as m(key, whole_key);
