/*
 * shapes.h - the shapes of well-known networks, to be filled with random weights: what a benchmark
 * needs where no file is at hand. Their texts mean nothing; their speed is that of the real ones.
 */
#ifndef TEMPER_MODEL_SHAPES_H
#define TEMPER_MODEL_SHAPES_H

#include "base/error.h"
#include "model/config.h"

/* Finds a shape by name. An unknown one is TEMPER_BAD_ARGUMENT with the names there are. */
temper_status model_shape_find(const char *name, model_config *out, error *err);

#endif
