"""A store put to the proof: hosts fire, faults strike, and the ledger of the jobs says whether each promise held."""
