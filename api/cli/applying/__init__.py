"""`rule-detector apply` and `export`: rules files made true of a running detector, and written from one."""
