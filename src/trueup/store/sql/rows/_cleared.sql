, cleared as (
  update {table} as t set {cleared}
    from verdicts as h
   where h.verdict in ('conflict', 'contested') and h.there and {t_is_h} and ({owned}) is true
)
