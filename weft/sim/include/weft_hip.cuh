// weft_hip.cuh: the simulator's side of runtime/gpu/weft_hip.cuh.
#pragma once

#include "weft_base.cuh"
