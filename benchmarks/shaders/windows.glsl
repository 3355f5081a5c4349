// Pooling, the usual way: an invocation per output that reads one element of the window after the other.

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint GROUP_SIZE = 256;

layout(binding = 0) readonly buffer Source { float source[]; };
layout(binding = 1) writeonly buffer Target { float target[]; };

// Arrays of three: depth, height, width.
layout(push_constant) uniform Push {
    uint outputs;
    uint input_size[3];
    uint output_size[3];
    uint window[3];
    uint stride[3];
    uint padding[3];
    uint dilation[3];
};

// The including shader defines how an element is accumulated, and how an output is written.
void accumulate(uint element);
void write(uint at);

void main()
{
    uint at = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * GROUP_SIZE + gl_LocalInvocationID.x;
    if (at >= outputs)
        return;

    uint row = at / output_size[2];
    uint layer = row / output_size[1];
    uint plane = layer / output_size[0];
    uint x0 = at % output_size[2] * stride[2] - padding[2];
    uint y0 = row % output_size[1] * stride[1] - padding[1];
    uint z0 = layer % output_size[0] * stride[0] - padding[0];

    // Positions before the input wrap around, and are then after it.
    for (uint dz = 0; dz < window[0]; ++dz) {
        uint z = z0 + dz * dilation[0];
        if (z >= input_size[0])
            continue;
        for (uint dy = 0; dy < window[1]; ++dy) {
            uint y = y0 + dy * dilation[1];
            if (y >= input_size[1])
                continue;
            for (uint dx = 0; dx < window[2]; ++dx) {
                uint x = x0 + dx * dilation[2];
                if (x < input_size[2])
                    accumulate(((plane * input_size[0] + z) * input_size[1] + y) * input_size[2] + x);
            }
        }
    }
    write(at);
}
