"""For tests, ours and those of users: models that cost nothing, a server that is as strict as the real one, a store's contract."""
