-- Undoes what was done since the savepoint, which is given up, too: a transaction may come by here many times.
rollback to savepoint trueup; release savepoint trueup;
