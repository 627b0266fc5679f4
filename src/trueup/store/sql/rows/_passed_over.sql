(select r.state <> 'resting' or r.due_at > {now} from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = {t_key} limit 1) is not true
