"""`rule-detector apply` and `export`: apply rules files to a running detector, and write them from one."""
