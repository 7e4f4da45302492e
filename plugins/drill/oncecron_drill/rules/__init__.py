"""What is promised, rule by rule: each is a function from a joined history to what breaks it."""
