-- Waits for claims of this worker that are still under way: each has a share lock on this row until it commits. What they took is
-- seen by the statement after this one, and by none that began before.
select holder from {schema}.workers where holder = %(holder)s for update;
