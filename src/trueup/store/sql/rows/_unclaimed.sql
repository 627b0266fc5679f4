 and not (k.trueup_state = {working} and exists (
           select from {schema}.rows as o
            where o.reconciler = any(array(select c.name from {schema}.reconcilers as c where c.place = %(place)s and c.name <> %(reconciler)s))
              and o.key = k.trueup_key and o.state = 'held' and o.due_at > {now}))
