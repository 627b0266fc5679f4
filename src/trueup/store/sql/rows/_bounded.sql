taken as materialized (
  select w.* from (select w.*, sum(w.trueup_bytes) over (order by w.trueup_n, w.trueup_key rows unbounded preceding)::bigint - w.trueup_bytes as trueup_before
                     from weighed as w) as w
   where w.trueup_before < {most_bytes}
)
