"""The sentencepiece library with the vocabulary of a GGUF file: what tokenizer.ggml.model = llama
means, from those who defined it.

A .model file is a protocol buffer: pieces (text, score, type), how they were trained, how a text is
normalised. It is written here by hand, because it is short: numbers of fields stand in the
library's sentencepiece_model.proto.
"""

import struct

import sentencepiece

UNKNOWN, USER_DEFINED = 2, 4  # types of pieces
BPE = 2  # a type of model
MARK = "\u2581"


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def text(field, value):
    data = value if isinstance(value, bytes) else value.encode()
    return varint(field << 3 | 2) + varint(len(data)) + data


def real(field, value):
    return varint(field << 3 | 5) + struct.pack("<f", value)


def processor(file):
    """A SentencePieceProcessor of the file's tokens, scores and types. GGUF's numbers of types are
    sentencepiece's, with two habits of its converters undone: the unknown token may be called a
    control token, and the spaces of user-defined pieces are spaces, not marks."""
    pieces = file.get("tokenizer.ggml.tokens")
    scores = file.get("tokenizer.ggml.scores")
    types = list(file.get("tokenizer.ggml.token_type"))
    unknown = file.get("tokenizer.ggml.unknown_token_id")
    types[unknown] = UNKNOWN
    out = bytearray()
    for piece, score, kind in zip(pieces, scores, types, strict=True):
        if kind == USER_DEFINED:
            piece = piece.replace(" ", MARK)
        out += text(1, text(1, piece) + real(2, score) + number(3, kind))
    trainer = number(3, BPE) + number(35, 1) + number(40, unknown) + text(45, pieces[unknown])
    for field, key in (41, "bos"), (42, "eos"), (43, "padding"):
        id = file.get(f"tokenizer.ggml.{key}_token_id")
        trainer += number(field, id) + text(field + 5, pieces[id])
    prefix = file.get("tokenizer.ggml.add_space_prefix", True)
    normaliser = text(1, "identity") + number(3, int(prefix)) + number(4, 0) + number(5, 1)
    out += text(2, trainer) + text(3, normaliser)
    return sentencepiece.SentencePieceProcessor(model_proto=bytes(out))
