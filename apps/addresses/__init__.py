"""Daily reconciliation of monitored blockchain addresses with what the chain says."""
