-- Keeps what was done since the savepoint.
release savepoint trueup;
