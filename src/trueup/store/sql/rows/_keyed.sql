select {given} from rows from ({arrays}) as m({names}), lateral (
    select {what}, ({eligible}) as trueup_eligible from {table} as t where {t_is_m} limit 1 for {lock} of t skip locked
  ) as t
   where t.trueup_eligible limit %(most)s
