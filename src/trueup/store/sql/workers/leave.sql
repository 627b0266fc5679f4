-- A worker that has handed everything back goes. With jobs still in hand the row stays, and expires, so that they are rescued.
delete from {schema}.workers as w
 where holder = %(holder)s and not exists (select from {schema}.jobs as j where j.holder = w.holder and j.state = 'running')
returning holder;
