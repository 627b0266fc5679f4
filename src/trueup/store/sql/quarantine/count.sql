-- How many rows of a reconciler are in quarantine, and the time at which they were counted. Index: rows_set_aside.
select count(*), {now} from {schema}.rows
 where reconciler = %(reconciler)s and state in ('quarantined', 'discarded') and state = 'quarantined';
