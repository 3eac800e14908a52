"""The records that cross a topic or enter a store, and the table of topics."""
