"""How an owner claims a folder, plans the recovery, and reads what it recovers."""
