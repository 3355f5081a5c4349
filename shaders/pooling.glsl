// What the kernels of MAX_POOLING share. They have three spatial dimensions (depth, height, width); a 4-D tensor has depth 1.

#define POOLING
#include "constants.glsl"
#include "items.glsl"
#include "values.glsl"
#include "best.glsl"
#include "blocks.glsl"

uvec3 all_of(uint dimensions[3]) { return uvec3(dimensions[0], dimensions[1], dimensions[2]); }
