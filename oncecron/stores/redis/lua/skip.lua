-- Count a skip that the store did not decide.
register()
count_skip(given)
return 1
