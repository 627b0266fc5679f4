"""Small models of the protocols, explored exhaustively: every interleaving, every loss, every pause, up to a bound."""
