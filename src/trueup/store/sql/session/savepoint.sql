-- Inside the caller's transaction: from here on all or nothing.
savepoint trueup;
