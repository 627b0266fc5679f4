case when ({here}) is not true then false
     when (select r.state in ('quarantined', 'discarded') or r.state = 'resting' and r.due_at > {now}
             from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = {t_key} limit 1) then false
     else {where} end
