// Shared by the kernels over windows. Windows have a depth, a height and a width; a 4-D tensor has depth 1.

#define POOLING
#include "core/constants.glsl"
#include "core/items.glsl"
#include "core/values.glsl"
#include "core/blocks.glsl"
#include "core/stores.glsl"
#include "core/counted.glsl"
#include "accumulator.glsl"

uvec3 all_of(uint dimensions[3]) { return uvec3(dimensions[0], dimensions[1], dimensions[2]); }
