, moved as (
  update {table} as t set {marks}
    from mine as c
   where {t_is_c}
  returning {told}, c.trueup_n, c.trueup_due, {seen} as trueup_seen, {keys}, {columns}{kept}
)
