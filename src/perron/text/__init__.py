"""From files to batches: readers, words, word vectors."""
