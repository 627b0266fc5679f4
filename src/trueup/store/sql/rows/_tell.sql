set_config('trueup_rows.told', (
  select coalesce(case when count(*) = cardinality({ends}) and {alike} then json_build_object('latest', {late_of_min}, 'earliest', {late_of_max})
                       else (select json_agg({late}) from (select {due} as due from {table} as t where t.ctid = any(p.slots)) as every) end::text, '[]')
    from (select {due} as due from {table} as t where t.ctid = any({ends})) as ends
), true)
