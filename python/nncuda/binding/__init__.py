"""How Python reaches the C library: the reader of its header, its loader, and the exchange of memory with others."""
