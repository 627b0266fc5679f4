MASK = "***"
