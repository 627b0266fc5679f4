-- For claim='row_lock' and a handler without tx: as remove_locked.sql, with nothing to compare. Index: the user's key.
delete from {table} as t where {t_is_p};
