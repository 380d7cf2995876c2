/*
 * hf.h - a Hugging Face model directory as the one GGUF file that a converter would make of it:
 * config.json becomes keys, tokenizer.json and tokenizer_config.json the vocabulary and the chat
 * template, model.safetensors (or the shards of model.safetensors.index.json) the tensors, in the
 * types they have; norms and biases become F32. Nothing is written and no tensor but the small ones
 * is read until somebody reads that part of the file.
 *
 * Architectures: LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM,
 * Gemma3ForCausalLM, Phi3ForCausalLM, GPT2LMHeadModel. As GGUF has it, rows of llama's Q and K come
 * with the two halves of a rotated pair next to each other, gemma3's norms with 1 added, gpt2's
 * matrices transposed. Rope: default, linear, llama3 (which becomes the tensor rope_freqs.weight),
 * yarn and phi3's longrope (two tensors of factors), under the keys rope_scaling or
 * rope_parameters, with type or rope_type.
 *
 * All files are hostile until checked: see safetensors.h; JSON is at most 256 MiB a file, and
 * whatever is missing, of a wrong kind or out of range is named with its file and key.
 */
#ifndef TEMPER_FILE_HF_H
#define TEMPER_FILE_HF_H

#include <stdbool.h>

#include "base/error.h"
#include "base/source.h"

/* *out is owned by the caller. With `vocabulary` a tokenizer that GGUF's keys cannot say is
 * TEMPER_UNSUPPORTED; without, the file then lacks the vocabulary, for whoever reads tokenizer.json
 * himself. Errors: TEMPER_IO, TEMPER_BAD_FILE,
 * TEMPER_NO_MEMORY, TEMPER_UNSUPPORTED for an architecture, activation, rope type, tensor or number
 * type that has no place here, by name. */
temper_status hf_open(const char *directory, bool vocabulary, source **out, error *err);

/* Opens a file of a directory by its name; *out is NULL where there is none. */
temper_status hf_open_file(const char *directory, const char *name, source **out, error *err);

#endif
