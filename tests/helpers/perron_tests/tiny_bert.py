"""Tiny BERT model and tokenizer, saved to a folder."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import WordPiece
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
PIECES = [
    *SPECIAL_TOKENS,
    *(
        f"{'##' * inside}{chr(97 + letter)}"
        for inside in (0, 1)
        for letter in range(26)
    ),
    *[
        "film",
        "fine",
        "dull",
        "the",
        "was",
        "lovely",
        "##ly",
        "un",
        "##believ",
        "##able",
    ],
    *[".", ",", "'", "(", ")", "-"],
]


def tiny_tokenizer() -> Tokenizer:
    """Return a WordPiece tokenizer whose vocabulary has every lowercase letter."""
    vocabulary = {piece: row for row, piece in enumerate(PIECES)}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


def write_tiny_bert(folder: Path) -> Path:
    """Write a model of width 16 with two layers, for texts of up to 40 subwords."""
    torch.manual_seed(5)
    config = BertConfig(
        vocab_size=len(PIECES) + 2,  # more vectors than subwords, as in some models
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=40,
        initializer_range=0.3,
    )
    BertModel(config).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tiny_tokenizer(),
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    ).save_pretrained(folder)
    return folder
