set_config('trueup_rows.told', (
  select case when count(*) = cardinality({ends}) and {alike}
              then json_build_object('picked', cardinality(p.slots), 'latest', {late_of_min}, 'earliest', {late_of_max})
              else json_build_object('picked', cardinality(p.slots), 'each', (
                     select json_agg({late}) from (select {due} as due from {table} as t where t.ctid = any(p.slots)) as every)) end::text
    from (select {due} as due from {table} as t where t.ctid = any({ends})) as ends
), true)
