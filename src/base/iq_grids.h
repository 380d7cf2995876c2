/*
 * iq_grids.h - the tables of the IQ types: a stored index names a row of four or eight small
 * numbers. They are part of the formats' definition.
 *
 * A row is one word. Of eight numbers, number i is at bits 2i and is 0, 1 or 2, which each type
 * reads as magnitudes of its own; of four, number i is at bits 4i, 0 to 7.
 */
#ifndef TEMPER_BASE_IQ_GRIDS_H
#define TEMPER_BASE_IQ_GRIDS_H

#include <stdint.h>

extern const uint16_t iq2_xxs_grid[256];
extern const uint16_t iq2_xs_grid[512];
extern const uint16_t iq2_s_grid[1024];
extern const uint16_t iq3_xxs_grid[256];
extern const uint16_t iq3_s_grid[512];
extern const uint16_t iq1_grid[2048]; /* of IQ1_S and IQ1_M */

#endif
