"""Reconcilers at work: sweeps over users' rows, and everything that loops for them.

`Sweeper` claims and hands rows to its `Crew`, which calls handlers; what they return goes to the `Settler`, which writes it;
the `Keeper` renews the leases of what is in hand. `Purger` moves and deletes without handlers.
"""
