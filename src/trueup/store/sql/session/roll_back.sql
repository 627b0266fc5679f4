-- Rolls back to the savepoint and releases it, because a transaction may set it many times.
rollback to savepoint trueup; release savepoint trueup;
