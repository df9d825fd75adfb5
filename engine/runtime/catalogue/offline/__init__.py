"""What is done with a data folder that no service uses, and copies of one that is in use."""
