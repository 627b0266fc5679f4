"""Real applications on trueup's public API, each answering a question a newcomer has."""
