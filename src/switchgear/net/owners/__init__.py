"""Several nodes that each own some partitions of the functions: links between nodes, relays, and who owns what."""
