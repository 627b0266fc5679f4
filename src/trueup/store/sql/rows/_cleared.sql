, cleared as (
  update {table} as t set {cleared}
    from held as h join verdicts as v on v.key = h.key
   where v.verdict = 'conflict' and h.there and {t_is_h} and {owned}
)
