-- Replication slots that retain more than the given bytes of WAL. Reads pg_replication_slots.
select s.slot_name::text, s.active, pg_wal_lsn_diff(e.lsn, s.restart_lsn)::float8 as bytes
  from pg_replication_slots as s,
       (select case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end as lsn) as e
 where pg_wal_lsn_diff(e.lsn, s.restart_lsn)::float8 > %(bytes)s::float8
 order by 1;
