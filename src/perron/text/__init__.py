"""Datasets, tokenizers, vocabularies and word vectors."""
