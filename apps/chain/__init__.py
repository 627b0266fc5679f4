"""What apps/addresses and apps/payments share: asking an EVM node over JSON-RPC, and a real node to try them with."""
