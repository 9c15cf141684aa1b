// Everything an embedding program needs: #include <rondo/rondo.h>.
#pragma once

#include "engine/graph/graph.h"
#include "engine/layers/layers.h"
#include "engine/session.h"
#include "kernels/base/error.h"
#include "kernels/base/packed_host.h"
