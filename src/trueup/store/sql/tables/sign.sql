-- A number that changes with a table's definition: by the versions of its rows in the catalog. Null when there is no such table.
select {sign};
