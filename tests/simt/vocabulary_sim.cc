#include "tests/simt/vocabulary.cu"
