"""Text to tokens: cleaning, vocabulary, tokenizer, and what writes a token store."""
