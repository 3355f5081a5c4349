#version 450
// ARGMAX over consecutive rows, the usual way: a workgroup per row, a tree in shared memory.

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint GROUP_SIZE = 256;

layout(binding = 0) readonly buffer Source { float source[]; };
layout(binding = 1) writeonly buffer Target { uint target[]; };

layout(push_constant) uniform Push {
    uint rows;
    uint row_length;
};

shared float values[GROUP_SIZE];
shared uint indices[GROUP_SIZE];

void main()
{
    uint row = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    if (row >= rows)
        return;

    uint thread = gl_LocalInvocationID.x;
    float best = uintBitsToFloat(0xFF800000u);  // minus infinity
    uint index = thread;
    for (uint i = thread; i < row_length; i += GROUP_SIZE) {
        float value = source[row * row_length + i];
        if (value > best) {
            best = value;
            index = i;
        }
    }
    values[thread] = best;
    indices[thread] = index;
    barrier();

    for (uint other = GROUP_SIZE / 2; other > 0; other /= 2) {
        if (thread < other) {
            float value = values[thread + other];
            uint at = indices[thread + other];
            if (value > values[thread] || (value == values[thread] && at < indices[thread])) {
                values[thread] = value;
                indices[thread] = at;
            }
        }
        barrier();
    }
    if (thread == 0)
        target[row] = indices[0];
}
