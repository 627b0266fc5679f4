-- A fired tick whose run did not take place after all (its lease was held elsewhere) counts as skipped, with the reason.
update {schema}.ticks set outcome = 'skipped', reason = %(reason)s
 where schedule = %(name)s and due_at = %(due_at)s and outcome = 'fired'
returning due_at;
