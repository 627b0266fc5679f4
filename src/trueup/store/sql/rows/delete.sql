-- Deletes chosen rows of one state, oldest first, up to a number; the database does it alone. Rows that somebody has locked are left,
-- and so are those that somebody has touched since this statement began. Index: one of the user's own (IndexMissing names the one that
-- would serve).
-- Comes back: how many, and how late the latest and the earliest of them were; how late each was only where they are not alike: looking
-- at every row costs a third of the whole.
with {picked}hit as (
  delete from {table} as t{using_picked}
   where {is_picked}
  returning {due} as due
)
select count(*), {late_of_min}, {late_of_max}, case when not {alike} then array(select {late} from hit) end from hit;
