-- after shared
-- Let a lease that ends more than its ttl ahead end a ttl from now: this server's clock was set back.
write_in_full_memory()
cut(hash(own.lease))
return 1
