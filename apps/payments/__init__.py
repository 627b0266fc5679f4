"""Payment requests that wait for money on a chain, and the reconcilers that watch for it."""
