"""What an owner writes: its journal and its snapshots; and what it removes after a snapshot."""
