#include "fuzz/fuzz.h"

#include <stdlib.h>

unsigned long fuzz_accepted;

void fuzz_check(bool holds)
{
    if (!holds)
        abort();
}
