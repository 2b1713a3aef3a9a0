"""Records of JSONL files, and the shards of tokens that training makes of them."""
