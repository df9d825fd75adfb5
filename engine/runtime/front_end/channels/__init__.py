"""How a front end passes operations on: a channel to each detector, and the requests that wait in it."""
