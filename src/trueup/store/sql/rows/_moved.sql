, moved as (
  update {table} as t set {marks}
    from taken as k join claimed as c on c.key = k.trueup_key
   where {t_is_k}
  returning k.trueup_n, k.trueup_key, k.trueup_due, {seen} as trueup_seen, {key_texts}, {columns}
)
