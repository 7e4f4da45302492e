"""The PostgreSQL store: a lease row, and a session advisory lock as a second safeguard."""
