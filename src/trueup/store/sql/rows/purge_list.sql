-- Rows that a move or deletion would touch, oldest first: what a dry run shows. Index: one of the user's own.
select {t_key}, {state}, {due} from {table} as t where {free} order by {ordered} limit %(most)s;
