-- Count a skip that the store did not decide.
register()
count_skip(given)
if given.version then see(0, 1) end
return 1
