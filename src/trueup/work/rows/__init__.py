"""Reconcilers at work: sweeps over users' rows, and everything that loops for them.

`Sweeper` claims rows and hands them to its `RowHand`, which calls handlers; `RowFinisher` writes what they return, and `RowRenewer`
renews the leases of what is in hand. `Purger` moves and deletes without handlers.
"""
