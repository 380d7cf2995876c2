#!/usr/bin/env python3
"""The tables of the IQ types as C, from the gguf package.

    python3 tools/golden/make_iq_grids.py src/base/iq_grids.c

The package keeps them as the format's authors wrote them (ggml-common.h of llama.cpp, MIT), packed
in hexadecimal digits; here a row is one word of 16 bits. Needs gguf 0.19.0, numpy 2.4.6.
"""

import argparse
import pathlib

import numpy as np
from gguf import quants

GRIDS = [
    ("iq2_xxs_grid", quants.IQ2_XXS),
    ("iq2_xs_grid", quants.IQ2_XS),
    ("iq2_s_grid", quants.IQ2_S),
    ("iq3_xxs_grid", quants.IQ3_XXS),
    ("iq3_s_grid", quants.IQ3_S),
    ("iq1_grid", quants.IQ1_S),
]

HEAD = """\
/*
 * iq_grids.c - made by tools/golden/make_iq_grids.py: run that again instead of editing this.
 *
 * The tables are those of llama.cpp (ggml-common.h), as the gguf package carries them:
 * Copyright (c) 2023-2026 The ggml authors, MIT; see THIRD_PARTY.md.
 */
#include "base/iq_grids.h"
"""


def words_of(kind):
    """One word a row: the place of each number in the grid's map, two or four bits each."""
    kind.init_grid()
    rows = kind.grid.reshape(kind.grid_shape)
    numbers = np.array(kind.grid_map, np.float32)
    places = np.argmax(rows[..., None] == numbers, axis=-1)
    assert (numbers[places] == rows).all()
    bits = 16 // kind.grid_shape[1]
    return (places << (bits * np.arange(kind.grid_shape[1]))).sum(axis=1)


def table(name, kind):
    words = [f"0x{word:04x}" for word in words_of(kind)]
    lines = ["    " + ", ".join(words[i : i + 12]) + "," for i in range(0, len(words), 12)]
    return f"\nconst uint16_t {name}[{len(words)}] = {{\n" + "\n".join(lines) + "\n};\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    out = parser.parse_args().out
    out.write_text(HEAD + "".join(table(*grid) for grid in GRIDS))


main()
