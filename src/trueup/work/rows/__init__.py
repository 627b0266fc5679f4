"""Reconcilers at work: sweeps over users' rows, and everything that loops for them.

A `Sweeper` is made of parts, each with one state of its own, and each calls only those after it:

    sweeper     one sweep after another
    walker      claims batch after batch, by way of `claims`
    hand        runs handlers on what is claimed, by way of `handling`; `judge` turns how one ended into a move
    breakers    the circuit breakers: open, probing, closed
    finisher    writes moves; `reports` says what became of each row
    sweeps      which sweeps are not over
    timetable   when to look again

`RowRenewer` renews the leases of what is in hand. `Purger` moves and deletes without handlers.
"""
