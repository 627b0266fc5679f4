"""`trueup demo`: a small shop on an embedded PostgreSQL, workers that are killed and frozen, and the proof that nothing went wrong."""
