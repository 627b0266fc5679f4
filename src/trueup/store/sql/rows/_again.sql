r.reconciler = %(reconciler)s and r.state in ('held', 'resting') and (r.state = 'held' and (r.started or r.crashes > 0)) = %(suspects)s
             and r.due_at <= least({now}, %(cut_off)s::timestamptz) and (r.due_at, r.key) > (%(after_due)s::timestamptz, %(after_key)s::text)
