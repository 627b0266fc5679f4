-- Waits for claims of this worker that are still in flight: each has a share lock on this row until it commits. Only statements that
-- begin after this one see the jobs that they claimed.
select holder from {schema}.workers where holder = %(holder)s for update;
