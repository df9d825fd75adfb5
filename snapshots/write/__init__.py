"""What an owner writes: its journal, its snapshots, and what it removes after them."""
