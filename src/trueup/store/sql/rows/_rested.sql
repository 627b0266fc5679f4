state = m.state, holder = null,
         due_at = case when m.state = 'resting' then {now} + make_interval(secs => m.delay) else 'infinity' end,
         attempt = greatest(0, coalesce(m.attempt, r.attempt)),
         crashes = case when m.error is null then 0 else r.crashes end, alone = false, started = false,
         occasion = case when m.ongoing then r.occasion end, changed_at = {now}, reason = m.reason,
         errors = case when m.error is null then case when m.attempt = 0 then '[]' else r.errors end
                       else case when jsonb_array_length(r.errors) >= %(most_errors)s then r.errors - 1 else r.errors end || m.error::jsonb end,
         proposed = coalesce(m.proposed::jsonb, r.proposed)
