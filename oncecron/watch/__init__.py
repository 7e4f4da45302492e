"""Who looks from outside: findings and how they end, and pings."""
