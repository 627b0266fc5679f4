-- Evaluates `where=`, and reads what a claim reads, for these rows: to find those that raise, with rows/one_by_one.sql.
-- Returns whether each row is free; one that is gone does not come back. Locks nothing. Index: the user's key.
select m.key, concat(left((t.*)::text, 0), t.trueup_free::text) as verdict
  from unnest(%(key)s::text[], %(whole_key)s::text[]) as m(key, whole_key), lateral (
    select ({free}) is true as trueup_free, {read} from {table} as t where {t_is_m} limit 1
  ) as t;
